"""Clips for tests, made by ffmpeg.

Each is made once and kept in build/clips, by a digest of all that it is made of; `make clean` removes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_KEPT = _ROOT / "build" / "clips"
_SCENE = _ROOT / "daemon" / "sources" / "scene.py"  # draws most of them


def ffmpeg(*arguments: str | Path) -> None:
    """Run it. The last argument is the file that it writes."""
    *others, last = arguments
    target, content = Path(last), _content(others)
    if content is None or "%" in target.name or target.suffix == ".m3u8":  # these lie beside other files
        _run(arguments)
    else:
        shutil.copyfile(_kept(target.suffix, content, lambda path: _run([*others, path])), target)


def _content(arguments: Sequence[str | Path]) -> list[str] | None:
    """The arguments with digests of files in their place; None where an input is neither a file nor drawn by ffmpeg."""
    words = [hashlib.sha256(Path(word).read_bytes()).hexdigest() if Path(word).is_file() else str(word)
             for word in arguments]  # fmt: skip
    inputs = [number + 1 for number, word in enumerate(words) if word == "-i"]
    known = all(Path(arguments[number]).is_file() or "lavfi" in words[number - 3 : number] for number in inputs)
    return words if known and "concat" not in words else None


def _run(arguments: Sequence[str | Path]) -> None:
    subprocess.run(["ffmpeg", "-v", "error", "-y", *map(str, arguments)], check=True, capture_output=True, timeout=120)


def once(folder: Path, name: str, make: Callable[[Path], object]) -> Path:
    """A clip that several processes use: the first process makes it, the others wait.

    Args:
        make: a function of a module, or a partial of one, is kept for later times; one within a function is not, but
            what `ffmpeg` makes for it is.
    """
    path = folder / name
    with _locked(path):
        if not path.exists():
            begun = path.with_name(f"begun-{name}")
            _make_once(begun, make)
            begun.rename(path)
    return path


def _make_once(path: Path, make: Callable[[Path], object]) -> None:
    function, arguments = (make.func, make.keywords) if isinstance(make, partial) else (make, {})
    if "<" in function.__qualname__:  # of a function, whose variables are not known here, or one of several lambdas
        make(path)
        return
    code = [Path(source).read_text() for source in (inspect.getfile(function), __file__, _SCENE)]
    shutil.copyfile(_kept(path.suffix, [function.__name__, arguments, *code], make), path)


def _kept(suffix: str, made_of: Sequence[object], make: Callable[[Path], object]) -> Path:
    """The file that `make` writes, from an earlier time if there was one."""
    program = Path(shutil.which("ffmpeg") or "ffmpeg").resolve()
    content = repr((suffix, program.stat().st_mtime_ns if program.exists() else 0, made_of))
    path = _KEPT / (hashlib.sha256(content.encode()).hexdigest()[:32] + suffix)
    _KEPT.mkdir(parents=True, exist_ok=True)
    with _locked(path):
        if not path.exists():
            begun = path.with_name(f"begun-{path.name}")
            make(begun)
            begun.rename(path)
    return path


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def pattern(
    path: Path, *, seconds: float, size: str = "320x180", fps: int = 15, codec: str = "libx264", aspect: str = ""
) -> Path:
    """ffmpeg's moving test picture; H.264 with a key frame a second and no B-frames, as cameras send.

    Args:
        aspect: of a pixel, if it is to be said.
    """
    options = ["-preset", "ultrafast", "-tune", "zerolatency", "-pix_fmt", "yuv420p"] if codec == "libx264" else []
    source = f"testsrc2=size={size}:rate={fps}:duration={seconds}"
    source += f",setsar={aspect}" if aspect else ""
    ffmpeg("-f", "lavfi", "-i", source, "-c:v", codec, "-g", str(fps), *options, path)
    return path


def bframes(path: Path) -> Path:
    """Three seconds of H.264 with B-frames, which no other picture needs."""
    ffmpeg(
        "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=15:duration=3", "-c:v", "libx264", "-bf", "3", "-g", "15",
        "-pix_fmt", "yuv420p", path,
    )  # fmt: skip
    return path
