"""Stand-ins for the libraries of NVIDIA's driver, compiled from its headers."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
from collections.abc import Iterable
from pathlib import Path

from detectors.trt.kernels import FOLDER
from tests.support.daemon import ROOT

_SUPPORT = Path(__file__).parent
_COMMAND = ("g++", "-O2", "-std=c++17", "-ffp-contract=off", "-shared", "-fPIC", f"-I{FOLDER}", f"-I{_SUPPORT}")


def built(folder: Path, *names: str) -> Path:
    """The folder with lib<name>.so.1 for each name: cuda, nvcuvid."""
    for name in names:
        soname = f"lib{name}.so.1"
        (folder / soname).symlink_to(compiled(_SUPPORT / f"{name}_stub.cpp", (f"-Wl,-soname,{soname}",)))
    return folder


def compiled(source: Path, more: Iterable[str] = ()) -> Path:
    """A library compiled from a source file here and the kernels; the first process compiles and caches it."""
    command = (*_COMMAND, *more, str(source), "-ldl", "-lpthread")
    texts = [path.read_bytes() for path in sorted((*FOLDER.glob("*.cu*"), *_SUPPORT.glob("*.h"), source))]
    key = hashlib.sha256(repr((command, texts)).encode()).hexdigest()[:16]
    library = ROOT / "build" / "stand-ins" / f"{source.stem}-{key}.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    with library.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            begun = library.with_suffix(".new")
            subprocess.run([*command, "-o", str(begun)], check=True, capture_output=True)
            begun.replace(library)
    return library
