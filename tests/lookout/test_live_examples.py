"""The examples for programs, run as they stand against a daemon with a recording of a drawn street."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from tests.support import clips
from tests.support.checkout import alone, copy_of_tree
from tests.support.daemon import PATIENCE_S, ROOT, Lookout, has_seen, receive_until, wait_until
from tests.support.street_clips import FPS, scene_of_clips, street

pytestmark = pytest.mark.needs("ffmpeg")
EXAMPLES = ROOT / "docs" / "examples"
_SECONDS, _DRAWN = 4, 24
_GREEN = (90, 200, 60)  # of draw_opencv.py


@pytest.fixture(scope="module")
def endpoint(folder_of_all: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a daemon that all of them listen to."""
    clip = clips.once(folder_of_all, "live-street.mp4", partial(street, seconds=_SECONDS))
    config: dict[str, object] = {"sources": [{"id": "street", "type": "av", "url": str(clip), "loop": True}]}
    with Lookout(tmp_path_factory.mktemp("daemon"), config) as lookout:
        with lookout.subscribe("detections") as subscriber:
            receive_until(subscriber, has_seen(1, "street"))
        yield lookout.endpoint


def _started(*words: str, path: Path | None = None) -> subprocess.Popen[str]:
    """An example, where `path` has modules that are found before others."""
    environment = {**os.environ, "PYTHONPATH": f"{path}:{ROOT}" if path else str(ROOT), "MPLBACKEND": "Agg"}
    return subprocess.Popen([sys.executable, *words], cwd=EXAMPLES, env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


def _ended(running: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        said, complained = running.communicate(timeout=PATIENCE_S)
    finally:
        running.kill()
    return running.returncode, said, complained


def _saved(file: Path) -> list[tuple[int, np.ndarray[Any, Any]]]:
    """Milliseconds, and pictures as BGR."""
    with av.open(str(file)) as container:
        return [(round((frame.time or 0) * 1000), frame.to_ndarray(format="bgr24"))
                for frame in container.decode(video=0)]  # fmt: skip


def test_boxes_are_drawn_on_their_very_picture(endpoint: str, tmp_path: Path) -> None:
    """What is saved are pictures of the street, each at its time, with green where its objects are in that one."""
    file = tmp_path / "out.mp4"
    words = ("draw_opencv.py", "street", "--endpoint", endpoint, "--save", str(file), "--pictures", str(_DRAWN))
    code, said, complained = _ended(_started(*words))
    assert (code, complained) == (0, "")
    _, analysed = (int(word) for word in said.split() if word.isdigit())
    assert said == f"{_DRAWN} pictures, {analysed} of them analysed\n"
    saved, numbers, marked = _saved(file), list[int](), 0
    for _, picture in saved:
        differences = [_difference(picture, other) for other in _street()]
        number = differences.index(min(differences))
        numbers.append(number)
        marked += all(_is_marked(picture, box.xyxy) for box in scene_of_clips().truth(number))
    assert marked == analysed > 0
    # A busy machine loses packets on the way, and the picture behind them still has its time.
    later = [at * FPS // 1000 for at, _ in saved]
    assert [at for at, _ in saved] == [number * 1000 // FPS for number in later]
    assert later == sorted({*later})
    assert numbers == [(numbers[0] + number) % len(_street()) for number in later]
    assert len(saved) == _DRAWN


@pytest.mark.long
def test_ctrl_c_ends_a_drawing_and_its_file(endpoint: str, tmp_path: Path) -> None:
    file = tmp_path / "out.mp4"
    running = _started("draw_opencv.py", "street", "--endpoint", endpoint, "--save", str(file))
    wait_until(lambda: running.poll() is not None or file.exists(), "it draws")
    running.send_signal(signal.SIGINT)
    code, said, complained = _ended(running)
    assert (code, complained) == (0, "")
    assert said.startswith(f"{len(_saved(file))} pictures, ")


@cache
def _street() -> list[np.ndarray[Any, Any]]:
    """The pictures of the recording, as they were drawn."""
    return [scene_of_clips().draw(number) for number in range(_SECONDS * FPS)]


def _difference(picture: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    return float(np.abs(picture[::8, ::8].astype(int) - other[::8, ::8]).mean())


def _is_marked(picture: np.ndarray[Any, Any], box: tuple[int, int, int, int]) -> bool:
    """Whether there is green along the upper and lower edge of an object, to three pixels."""
    x1, y1, x2, y2 = box
    green = np.abs(picture.astype(int) - _GREEN).max(axis=2) < 60
    rows = (green[max(0, y - 3) : y + 4, max(0, x1) : x2].any(axis=0).mean() for y in (y1, y2))
    return float(min(rows)) > 0.6


@pytest.mark.needs("supervision")
def test_supervision_draws_them(endpoint: str, tmp_path: Path) -> None:
    file = tmp_path / "out.mp4"
    words = ("draw_supervision.py", "street", "--endpoint", endpoint, "--save", str(file), "--pictures", "6")
    code, said, complained = _ended(_started(*words))
    assert (code, complained) == (0, "")
    assert said.startswith("6 pictures, ")
    changed = [min(_difference(picture, other) for other in _street()) for _, picture in _saved(file)]
    assert max(changed) > 1  # boxes and labels


def test_an_event_loop_listens_until_it_is_interrupted(endpoint: str) -> None:
    running = _started("listen_asyncio.py", endpoint)
    assert running.stdout is not None
    assert running.stdout.readline().startswith("street ")
    running.send_signal(signal.SIGINT)
    code, _, complained = _ended(running)
    assert (code, complained) == (0, "ended\n")


def _cells() -> list[dict[str, Any]]:
    """The notebook's code."""
    notebook = json.loads((EXAMPLES / "live.ipynb").read_text())
    return [row for row in notebook["cells"] if row["cell_type"] == "code"]


def _program(endpoint: str) -> str:
    """All cells, one after the other."""
    cells = "\n\n".join("".join(row["source"]) for row in _cells())
    return f"import os\nos.environ['LOOKOUT_ENDPOINT'] = {endpoint!r}\n{cells}"


def test_the_notebook_runs_from_its_first_cell_to_its_last(endpoint: str) -> None:
    """And is kept without what came out of it."""
    cells = _cells()
    assert [(row["outputs"], row["execution_count"]) for row in cells] == [([], None)] * len(cells)
    code, said, complained = _ended(_started("-c", _program(endpoint)))
    assert (code, complained) == (0, "")
    assert said.startswith("20 messages of {'street'} lost: {}")


@pytest.mark.parametrize(
    ("example", "lacking"),
    [("draw_opencv.py", "av"), ("draw_opencv.py", "cv2"), ("draw_supervision.py", "supervision"),
     ("listen_asyncio.py", "lookout")],
)  # fmt: skip
def test_a_package_that_is_not_there_is_one_line(example: str, lacking: str, tmp_path: Path) -> None:
    (tmp_path / f"{lacking}.py").write_text(f"raise ModuleNotFoundError('none', name={lacking!r})\n")
    code, said, complained = _ended(_started(example, "street", path=tmp_path))
    assert (code, said) == (1, "")
    (line,) = complained.splitlines()
    assert line.startswith(f"{lacking} is not installed: pip install lookout-client")


@pytest.mark.long
def test_they_run_beside_python_daemon(endpoint: str, tmp_path: Path) -> None:
    """In an environment with it, with the wheel of the client and without Lookout; pip fetches the others."""
    tree = copy_of_tree(tmp_path / "tree", "client", "lookout", "LICENSE")
    build = ["-m", "build", "--no-isolation", "--wheel", "--outdir", str(tmp_path), str(tree / "client")]
    subprocess.run([sys.executable, *build], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    wanted = [str(wheel), "python-daemon", "av", "opencv-python-headless", "supervision", "matplotlib"]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True, env=alone())

    def says(*words: str) -> str:
        done = subprocess.run([python, *words], cwd=EXAMPLES, env={**alone(), "MPLBACKEND": "Agg"}, text=True,
                              capture_output=True, check=False, timeout=PATIENCE_S)  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert says("-c", "import daemon, lookout.client; print(daemon.DaemonContext.__name__)") == "DaemonContext\n"
    for name in ("draw_opencv.py", "draw_supervision.py"):
        file = tmp_path / f"{name}.mp4"
        words = ("street", "--endpoint", endpoint, "--save", str(file), "--pictures", "6")
        assert says(name, *words).startswith("6 pictures, ")
        assert len(_saved(file)) == 6
    assert says("-c", _program(endpoint)).startswith("20 messages of {'street'}")
    running = subprocess.Popen([python, "listen_asyncio.py", endpoint], cwd=EXAMPLES, env=alone(), text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    assert running.stdout is not None
    assert running.stdout.readline().startswith("street ")
    running.send_signal(signal.SIGINT)
    assert _ended(running)[::2] == (0, "ended\n")


def test_each_can_be_read_at_once() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert {name: length for name, length in lengths.items() if length > 100} == {}
