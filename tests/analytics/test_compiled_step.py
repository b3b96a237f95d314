"""The compiled tracker gives what the one in numpy gives, to the last bit."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.analytics import compiled_step, numpy_step
from daemon.analytics.grouping import Grouping
from daemon.analytics.jit import versioned
from daemon.analytics.loops import PYTHON, fastest_loops
from daemon.analytics.source_tracks import SourceTracks
from daemon.analytics.track_step import MAX_TRACKS, StepInput, StepOutput
from daemon.analytics.tracker import TrackSettings, track
from detectors.detections import Detections
from tests.analytics.walks import SETTINGS, Seen, boxes, frame_of, walk
from tests.support.events import logged

_GROUPING = Grouping(("person", "car", "truck"), [("car", "truck")])


def _both(work: StepInput) -> StepOutput:
    own = msgspec.structs.replace(work, tracks=work.tracks.copy())
    expected, given = numpy_step.step(own), compiled_step.step(work)
    for one, other in zip(_arrays(expected), _arrays(given)):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    assert expected.left_out == given.left_out
    return given


def _arrays(output: StepOutput) -> list[npt.NDArray[Any]]:
    columns = output.tracks, output.sources, output.rows, *output.boxes, *output.columns
    changes = output.named, *output.young, output.lost, output.forgotten
    return [np.ascontiguousarray(column) for column in (*columns, *changes)]


def _follow(batches: Sequence[Sequence[Seen]], own: TrackSettings, grouping: Grouping = _GROUPING) -> int:
    """Track with both; the number of confirmed tracks."""
    states: dict[str, SourceTracks] = {}
    for batch in batches:
        now = [states.setdefault(seen.frame.source, SourceTracks()) for seen in batch]
        track(_both, [seen.frame for seen in batch], [seen.found for seen in batch], now, [own] * len(batch), grouping)
    return sum(state.last_id for state in states.values())


@given(
    seed=st.integers(0, 1 << 32),
    objects=st.lists(st.integers(0, 40), min_size=1, max_size=5),
    timeout_s=st.sampled_from([0.05, 1.0]),
    memory_s=st.sampled_from([0.05, 0.4, 3.0]),
    confirm_hits=st.integers(1, 4),
    kept=st.floats(0.3, 1.0),
)
@settings(max_examples=30, deadline=None)
def test_walks(
    seed: int, objects: list[int], timeout_s: float, memory_s: float, confirm_hits: int, kept: float
) -> None:
    """Several sources with objects that cross, frames and boxes that are missing, weak boxes, and changing labels."""
    random = np.random.default_rng(seed)
    walks = [
        walk(int(random.integers(1 << 30)), objects=count, seconds=1, source=f"cam-{number}", classes=3)
        for number, count in enumerate(objects)
    ]
    batches = [[seen for seen in batch if random.random() < kept] for batch in zip(*walks)]
    limits = {"timeout_ns": round(timeout_s * 1e9), "memory_ns": round(memory_s * 1e9)}
    own = replace(SETTINGS, **limits, confirm_hits=confirm_hits)
    _follow([batch for batch in batches if batch], own)


def test_tracks_are_confirmed() -> None:
    walks = [walk(number, objects=20, seconds=2, source=f"cam-{number}", classes=3) for number in range(3)]
    assert _follow([*zip(*walks)], SETTINGS) > 30


def test_a_crowd() -> None:
    """So many boxes that most overlap many others, in three labels of two groups."""
    random = np.random.default_rng(0)
    place = random.uniform(0, 400, (300, 2))
    batches = []
    for number in range(12):
        place += random.normal(0, 3, place.shape)
        corners = np.hstack((place, place + 80)).astype(np.float32)
        confidence = np.sort(random.uniform(0.05, 1, 300).astype(np.float32))[::-1].copy()
        found = Detections(corners, confidence, random.integers(0, 3, 300).astype(np.int32))
        batches.append([Seen(frame_of(number, number * 33_000_000), found, [], np.empty((0, 4)))])
    assert _follow(batches, SETTINGS) > 100


def test_too_many_objects() -> None:
    corners = [(10.0 * (number % 190), 10.0 * (number // 190), 10.0 * (number % 190) + 9, 10.0 * (number // 190) + 9)
               for number in range(MAX_TRACKS + 7)]  # fmt: skip
    batches = [
        [Seen(frame_of(number, number * 33_000_000), boxes(*corners), [], np.empty((0, 4)))] for number in range(4)
    ]
    assert _follow(batches, SETTINGS) == MAX_TRACKS


def test_equal_boxes_keep_their_order() -> None:
    """Pairs of equal worth are made in the order of tracks and boxes."""
    corners = [(100.0, 100.0, 200.0, 200.0)] * 5
    batches = [
        [Seen(frame_of(number, number * 33_000_000), boxes(*corners), [], np.empty((0, 4)))] for number in range(5)
    ]
    _follow(batches, SETTINGS)


@pytest.mark.parametrize("labels", [("person",), ("person", "car", "truck", "bus")])
def test_one_signature_serves_all(labels: tuple[str, ...]) -> None:
    """`compile_now` compiles what lanes call, so no lane waits for a compiler."""
    compiled_step.compile_now()
    before = compiled_step.signatures()
    walks = [walk(number, objects=5, seconds=0.2, source=f"cam-{number}") for number in range(2)]
    _follow([*zip(*walks)], SETTINGS, Grouping(labels))
    _follow([[seen] for seen in walks[0]], SETTINGS, Grouping(labels, [("car", "truck")]))
    assert compiled_step.signatures() == before == 1


def test_without_numba_it_is_numpy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert fastest_loops(tmp_path).step is compiled_step.step
    for name in ("compiled_step", "jit"):
        monkeypatch.delattr(f"daemon.analytics.{name}")
        monkeypatch.delitem(sys.modules, f"daemon.analytics.{name}")
    monkeypatch.setitem(sys.modules, "numba", None)
    with logged() as logs:
        assert fastest_loops(tmp_path) is PYTHON
    assert ["pip install 'lookoutd[fast]'" in line["event"] for line in logs] == [True]


def test_what_does_not_compile_runs_in_numpy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(compiled_step, "compile_now", fail)
    with logged() as logs:
        assert fastest_loops(tmp_path) is PYTHON
    assert [(line["log_level"], line["reason"]) for line in logs] == [
        ("warning", "cannot cache function: no locator available")
    ]


def test_each_version_of_the_sources_has_its_own_code(tmp_path: Path) -> None:
    """Numba would run what it has compiled with constants of before. Started processes use the same folder."""
    folder = versioned(tmp_path)
    assert folder.parent == tmp_path
    assert versioned(folder) == folder
    assert versioned(Path(os.environ["NUMBA_CACHE_DIR"])) == Path(os.environ["NUMBA_CACHE_DIR"])
