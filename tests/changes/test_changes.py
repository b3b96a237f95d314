"""How far a change reaches: a source type touches three files of daemon/, a stage two, a metric one, a part four, a
sink three.

Each patch is applied to a copy of the tree, and what it adds is tried there.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from lookout.messages import Detections, decode
from tests.support.checkout import alone, copy_of_tree
from tests.support.daemon import PATIENCE_S, ROOT, Lookout, has_seen, is_state, receive_until, wait_until
from tests.support.ports import free_port
from tests.support.served import HEADERS, TOKEN

_FOLDER = Path(__file__).parent
FILES = {"source": 3, "stage": 2, "metric": 1, "part": 4, "sink": 3}
_RENEW = """{said}
tests/changes/{name}.patch does not fit the tree any more, or what it adds does not work in it.
To renew it: git apply --3way tests/changes/{name}.patch (or patch -p1 --merge < ...), mend what does not fit, then
git add -AN && git diff -U1 HEAD -- daemon tests/contract > {name}.patch, git checkout what it touched, move it back."""


_STREETS = [{"id": name, "type": "synthetic"} for name in ("one", "two")]


def _patched(tmp_path: Path, name: str) -> Path:
    """A copy of what runs, with one change."""
    parts = "daemon", "detectors", "calibration", "lookout", "lookoutd", "models", "tests", "pyproject.toml"
    tree = copy_of_tree(tmp_path / "tree", *parts, compiled=True)
    patch = ["git", "apply", "--whitespace=nowarn", str(_FOLDER / f"{name}.patch")]
    bounds = {**alone(), "GIT_CEILING_DIRECTORIES": str(tmp_path)}  # no repository around it is asked
    done = subprocess.run(patch, cwd=tree, env=bounds, capture_output=True, text=True, check=False)
    assert done.returncode == 0, _RENEW.format(name=name, said=done.stderr)
    return tree


@contextmanager
def _running(folder: Path, tree: Path, **config: object) -> Iterator[tuple[Lookout, httpx.Client]]:
    """The daemon of a tree, and who may ask its API."""
    port = free_port()
    http = {"enabled": True, "port": port, "token": TOKEN}
    address = f"http://127.0.0.1:{port}"
    with (
        Lookout(folder, {"http": http, **config}, tree=tree) as lookout,
        httpx.Client(base_url=address, headers=HEADERS, timeout=PATIENCE_S) as client,
    ):
        yield lookout, client


def _keeps_its_promises(tree: Path, port: str, name: str) -> None:
    """The contract of a port, in a tree with a patch of this port's name."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", name, f"tests/contract/test_{port}.py"]
    done = subprocess.run(command, cwd=tree, env={**alone(), "PYTHONPATH": str(tree)},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, _RENEW.format(name=port, said=done.stdout)
    assert re.search(r"^\.{5,} ", done.stdout), done.stdout  # not one is left out


@pytest.mark.parametrize("name", list(FILES))
def test_a_change_touches_few_files(name: str) -> None:
    """As many as CONTRIBUTING.md says."""
    touched = re.findall(r"^\+\+\+ b/(daemon/\S+)", (_FOLDER / f"{name}.patch").read_text(), re.MULTILINE)
    assert len(touched) == FILES[name]
    numbers = {1: "one file", 2: "two files", 3: "three files", 4: "four files"}
    said = f"A {'source type' if name == 'source' else name}"
    paragraphs = (ROOT / "CONTRIBUTING.md").read_text().split("\n\n")
    assert any(row.startswith(said) and numbers[FILES[name]] in row for row in paragraphs)


@pytest.mark.needs("ffmpeg")
def test_a_source_type(tmp_path: Path) -> None:
    """It keeps every promise of a source, and a daemon plays it. Over the network it is not added unasked."""
    tree = _patched(tmp_path, "source")
    _keeps_its_promises(tree, "source", "raw")
    (tmp_path / "frames.raw").write_bytes(bytes(64 * 48 * 3 * 3))
    raw = {"type": "raw", "path": "frames.raw", "width": 64, "height": 48}
    sources = [{"id": "own", **raw}, {"id": "street", "type": "synthetic"}]
    whole = {"board": {"mode": "lossless"}, "publisher": {"wait_for_subscriber_s": PATIENCE_S}}
    with _running(tmp_path, tree, sources=sources, **whole) as (lookout, http):
        with lookout.subscribe() as subscriber:
            messages = receive_until(subscriber, is_state("own", "ended"))
        seen = [row for row in messages if isinstance(row, Detections) and row.source == "own"]
        sizes = [(row.image.width, row.image.height, row.seq) for row in seen]
        assert sizes == [(64, 48, seq) for seq in range(3)], _RENEW.format(name="source", said=lookout.log())
        answer = http.post("/api/v1/sources", json={"id": "other", **raw})
        assert (answer.status_code, "raw opens what this machine has" in answer.text) == (422, True)
        kinds = http.get("/openapi.json").json()["components"]["schemas"]["Source"]["oneOf"]
        assert "RawConfig" in str(kinds)
        assert http.get("/api/v1/sources/own").json()["config"]["path"] == str(tmp_path / "frames.raw")


def _boxes_at_the_edge(folder: Path, tree: Path) -> int:
    """Of the first forty frames of a street."""
    street = {"id": "street", "type": "synthetic", "frames": 40, "pace": "fast"}
    publisher = {"wait_for_subscriber_s": PATIENCE_S}
    with _running(folder, tree, sources=[street], board={"mode": "lossless"}, publisher=publisher) as (lookout, _):
        with lookout.subscribe() as subscriber:
            messages = receive_until(subscriber, is_state("street", "ended"))
        boxes = [row.box for message in messages if isinstance(message, Detections) for row in message.detections]
    assert len(boxes) > 100
    return sum(min(left, top) <= 1 or right >= 639 or bottom >= 359 for left, top, right, bottom in boxes)


def test_a_stage(tmp_path: Path) -> None:
    """It keeps every promise of a stage; and no box that is published touches the edge, as some do without it."""
    tree = _patched(tmp_path, "stage")
    _keeps_its_promises(tree, "stage", "whole")
    assert _boxes_at_the_edge(tmp_path, tree) == 0
    assert _boxes_at_the_edge(tmp_path, ROOT) > 0


def test_a_metric(tmp_path: Path) -> None:
    """It stands among those that Prometheus reads."""
    with _running(tmp_path, _patched(tmp_path, "metric"), sources=_STREETS) as (lookout, http):
        with lookout.subscribe() as subscriber:
            receive_until(subscriber, has_seen(1, "one", "two"))
        assert 'lookout_sources{state="up"} 2.0' in http.get("/metrics").text.splitlines()


def test_a_part_with_a_thread(tmp_path: Path) -> None:
    """It works while the daemon does, and leaves nothing."""
    alive = tmp_path / "alive"
    monitor = {"alive_file": str(alive)}
    with _running(tmp_path, _patched(tmp_path, "part"), sources=_STREETS, monitor=monitor) as (lookout, _):
        with lookout.subscribe() as subscriber:
            receive_until(subscriber, has_seen(1, "one", "two"))
        wait_until(alive.exists, "the file is there")
        first = alive.stat().st_mtime_ns
        wait_until(lambda: alive.stat().st_mtime_ns > first, "it is touched")
        assert lookout.stop() == 0
        assert not alive.exists()


def test_a_sink(tmp_path: Path) -> None:
    """It gets what subscribers get."""
    file = tmp_path / "lines"
    publisher = {"lines_file": str(file)}
    with _running(tmp_path, _patched(tmp_path, "sink"), sources=_STREETS, publisher=publisher) as (lookout, _):
        with lookout.subscribe() as subscriber:
            messages = receive_until(subscriber, has_seen(3, "one", "two"))
        assert lookout.stop() == 0
    seen = {(row.source, row.seq) for row in messages if isinstance(row, Detections)}
    rows = [decode(*line.split(b" ", 1)) for line in file.read_bytes().splitlines()]
    assert seen <= {(row.source, row.seq) for row in rows if isinstance(row, Detections)}
