"""Commands that measure: figures are in their file before anything is drawn, and a missing library is found before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.support import clips
from tests.support.daemon import DEMO_MODEL, PATIENCE_S, ROOT
from tests.support.streets import labelled_streets

pytestmark = pytest.mark.needs("ffmpeg")

_FULL = "lookout: standard output cannot be written: No space left on device"
_SHORT = ("--sources", "1", "--seconds", "0.1", "--warm-up", "0", "--backend", "cpu", "--max-batch", "1")
_RUN = ("daemon", "bench", "run", "{clip}", *_SHORT)
_MOST = ("daemon", "bench", "search", "{clip}", *_SHORT, "--most", "sources", "--max-p99", "0", "--confirm", "0")
_PHOTOS = ("--images", "{photos}", "--annotations", "{photos}/truth.json")
_PLACED = ("fleet", "--sources", "40", "--members", "4", "--lost", "1", "--rounds", "1")

# By what is in the file.
_MEASURED: dict[str, Sequence[str]] = {
    "cases": (*_RUN, "--repeats", "1"),
    "constraints": (*_MOST, "--out", "{folder}"),
    "ap50": ("daemon", "evaluate", "--model", str(DEMO_MODEL), *_PHOTOS),
    "published": ("tests.bench", "python", "--sources", "2", "--frames", "40"),
    "tracking": ("tests.bench", "analytics", "--objects", "1", "--sources", "1", "--frames", "2"),
    "times": ("tests.bench", *_PLACED),
}

# Each begins with a file that is not there.
_NEEDING: dict[str, Sequence[str]] = {
    "bench run": (*_RUN, "--repeats", "1", "--model", "gone.onnx"),
    "bench run, repeats": (*_RUN, "--repeats", "2", "--model", "gone.onnx"),
    "bench search, grid": ("daemon", "bench", "search", "{clip}", "--over", "batch=1", "--model", "gone.onnx"),
    "bench search, most": (*_MOST, "--model", "gone.onnx", "--out", "{folder}"),
    "bench part decode": ("daemon", "bench", "part", "decode", "gone.mp4"),
    "bench part engine": ("daemon", "bench", "part", "engine", "gone.onnx"),
    "bench compare": ("daemon", "bench", "compare", "gone.json", "gone.json"),
    "bench report": ("daemon", "bench", "report", "gone.json"),
    "evaluate photos": ("daemon", "evaluate", "--model", "gone.onnx", *_PHOTOS),
    "evaluate tiles": ("daemon", "evaluate", "--model", "gone.onnx", *_PHOTOS, "--tiles", "2x2"),
    "evaluate classes": ("daemon", "evaluate", "--model", "gone.onnx", "--classify", "gone"),
    "evaluate tracks": ("daemon", "evaluate", "--model", "gone.onnx", "--mot", "gone"),
    "calibrate": ("daemon", "calibrate", "gone.onnx", "--from", "gone"),
    "engine build": ("daemon", "engine", "build", "gone.onnx"),
    "engine compare": ("daemon", "engine", "compare", "gone.onnx"),
    "engine profile": ("daemon", "engine", "profile", "gone.onnx"),
    "check": ("daemon", "check", "-c", "gone.yaml"),
    "demo": ("daemon", "demo"),
}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory, folder_of_all: Path) -> dict[str, str]:
    """Files that the commands get."""
    clip = clips.once(folder_of_all, "tiny.mkv", partial(clips.pattern, seconds=0.4, size="64x64"))
    photos, _ = labelled_streets(tmp_path_factory.mktemp("photos"), 2)
    return {"{clip}": str(clip), "{photos}": str(photos)}


def _command(words: Sequence[str], names: dict[str, str], folder: Path) -> list[str]:
    known = {**names, "{folder}": str(folder)}

    def filled(word: str) -> str:
        for name, path in known.items():
            word = word.replace(name, path)
        return word

    return [sys.executable, "-m", *map(filled, words)]


def _run(
    words: Sequence[str], names: dict[str, str], folder: Path, broken: str = "", stdout: str = os.devnull
) -> tuple[int, str]:
    """The exit code, and what is on standard error.

    Args:
        broken: a library that cannot be imported.
    """
    if broken:
        (folder / f"{broken}.py").write_text(f"raise ModuleNotFoundError('no {broken}', name='{broken}')")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}
    with open(stdout, "wb") as output:
        done = subprocess.run(_command(words, names, folder), cwd=folder, env=environment, stdout=output, check=False,
                              stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.share(3)
@pytest.mark.parametrize("key", _MEASURED)
def test_figures_are_there_where_nothing_can_be_shown(key: str, names: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    code, said = _run((*_MEASURED[key], "--json", str(file)), names, tmp_path, stdout="/dev/full")
    assert (code, said.splitlines()[-1]) == (1, _FULL)
    assert key in json.loads(file.read_text())


def test_figures_are_there_where_no_page_can_be_drawn(names: dict[str, str], tmp_path: Path) -> None:
    """matplotlib is installed and cannot be imported."""
    file, out = tmp_path / "figures.json", tmp_path / "out"
    words = (*_RUN, "--repeats", "1", "--json", str(file), "--out", str(out))
    code, said = _run(words, names, tmp_path, broken="matplotlib")
    assert (code, said.splitlines()[-1]) == (2, "lookout: matplotlib is not installed: pip install matplotlib")
    assert file.read_bytes() == (out / "run.json").read_bytes()
    assert "cases" in json.loads(file.read_text())


_EACH = """
import contextlib, io, json, sys
from daemon.cli import invoke
found = []
for words in json.load(sys.stdin):
    with contextlib.redirect_stderr(io.StringIO()) as said:
        found.append((invoke(words), said.getvalue()))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def without_rich(names: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """What each command says, all in one process."""
    folder = tmp_path_factory.mktemp("without")
    (folder / "rich.py").write_text("raise ModuleNotFoundError('no rich', name='rich')")
    words = [_command(words, names, folder)[3:] for words in _NEEDING.values()]  # behind `python -m daemon`
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}
    command = [sys.executable, "-c", _EACH]
    done = subprocess.run(command, cwd=folder, env=environment, input=json.dumps(words), capture_output=True,
                          check=True, text=True, timeout=PATIENCE_S)  # fmt: skip
    return dict(zip(_NEEDING, map(tuple, json.loads(done.stdout.splitlines()[-1]))))


@pytest.mark.parametrize("name", _NEEDING)
def test_a_missing_library_is_found_before_the_work(name: str, without_rich: dict[str, tuple[int, str]]) -> None:
    """The line is of rich, and not of the model that is not there either."""
    code, said = without_rich[name]
    assert (code, said.replace("'lookoutd[calibrate]'", "rich")) == (
        2,
        "lookout: rich is not installed: pip install rich\n",
    )


def test_accuracy_is_measured_before_minutes_of_runs(names: dict[str, str], tmp_path: Path) -> None:
    frames = tmp_path / "frames.jsonl"
    words = (*_RUN, *_PHOTOS, "--repeats", "2", "--frames-out", str(frames))
    code, said = _run(words, names, tmp_path, broken="pycocotools")
    assert (code, said.splitlines()[-1]) == (
        2,
        "lookout: evaluate: pycocotools is not installed: pip install 'lookoutd[calibrate]'",
    )
    assert not frames.exists()
