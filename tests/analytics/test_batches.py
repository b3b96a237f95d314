"""Tracks are the same, to the last bit, however frames are cut into batches and whichever lane takes them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.analytics.track_stage import Tracker, TrackerStage
from daemon.config.load import parse
from daemon.config.root import Config
from daemon.pipeline.ledger import Ledger
from detectors.detections import Detections
from tests.analytics.walks import Seen, walk

_SOURCES = {"street": 0, "yard": 7, "hall": 30}  # and their objects
_LABELS = ("person", "car", "truck")
_FRAMES = 40


def _config() -> Config:
    rows = "".join(f"  - {{id: {source}, type: synthetic}}\n" for source in _SOURCES)
    return parse(f"model: {{path: x}}\ntracking: {{enabled: true, groups: [[car, truck]]}}\nsources:\n{rows}")


@lru_cache(maxsize=1)
def _walks() -> dict[str, list[Seen]]:
    return {
        source: walk(number, objects=number, seconds=_FRAMES / 30, source=source, classes=3)
        for source, number in _SOURCES.items()
    }


def _numbers(result: Detections) -> bytes:
    assert result.tracks is not None
    tracks = result.tracks
    return b"".join(
        column.tobytes() for column in (tracks.id, tracks.class_id, tracks.xyxy, tracks.velocity, tracks.age)
    )


@lru_cache(maxsize=1)
def _alone() -> dict[str, list[bytes]]:
    """Each source on its own, a frame at a time."""
    stage = TrackerStage(Tracker(_config(), Ledger()), _LABELS)
    return {
        source: [_numbers(stage([seen.frame], [seen.found])[0]) for seen in frames]
        for source, frames in _walks().items()
    }


def test_there_are_tracks() -> None:
    ids: set[int] = set()
    stage = TrackerStage(Tracker(_config(), Ledger()), _LABELS)
    for seen in _walks()["hall"]:
        (result,) = stage([seen.frame], [seen.found])
        assert result.tracks is not None
        ids |= set(result.tracks.id.tolist())
    assert len(ids) > 20


@given(st.lists(st.tuples(st.sampled_from(list(_SOURCES)), st.integers(1, 9)), max_size=60), st.integers(0, 1 << 32))
@settings(max_examples=40, deadline=None)
def test_batches_may_be_cut_anywhere(takes: Sequence[tuple[str, int]], seed: int) -> None:
    """Each batch has some of the next frames of some sources, in any order that keeps each source's own."""
    random = np.random.default_rng(seed)
    stage, walks = TrackerStage(Tracker(_config(), Ledger()), _LABELS), _walks()
    results: dict[str, list[bytes]] = {source: [] for source in _SOURCES}
    position = dict.fromkeys(_SOURCES, 0)
    batch: list[Seen] = []

    def detect() -> None:
        for seen, result in zip(batch, stage([seen.frame for seen in batch], [seen.found for seen in batch])):
            results[seen.frame.source].append(_numbers(result))
        batch.clear()

    for source, count in [*takes, *((source, _FRAMES) for source in _SOURCES)]:
        for seen in walks[source][position[source] : position[source] + count]:
            batch.append(seen)
        position[source] = min(_FRAMES, position[source] + count)
        if random.random() < 0.5:
            detect()
    detect()
    assert results == _alone()


def test_lanes_do_not_matter() -> None:
    """Four threads, each with one source at a time in flight, as lanes have them."""
    stage, walks = TrackerStage(Tracker(_config(), Ledger()), _LABELS), _walks()

    def serve(source: str) -> list[bytes]:
        frames = walks[source]
        return [
            _numbers(result)
            for begin in range(0, len(frames), 3)
            for result in stage(
                [seen.frame for seen in frames[begin : begin + 3]], [seen.found for seen in frames[begin : begin + 3]]
            )
        ]

    with ThreadPoolExecutor(4) as lanes:
        assert dict(zip(_SOURCES, lanes.map(serve, _SOURCES))) == _alone()
