"""What the page remembers: an hour of figures, and a minute of tracks, in bounded memory."""

from __future__ import annotations

import sys
from collections import deque
from typing import Any

import msgspec

from daemon.dashboard.history import Figures, Tracks
from lookout.messages import (
    Detection,
    Detections,
    Dropped,
    FrameClock,
    ImageSize,
    Latency,
    Metrics,
    Model,
    Percentiles,
    ProcessMetrics,
    PublisherMetrics,
    SourceMetrics,
)

_S = 1_000_000_000
_TAKES = Percentiles(1_000_000, 2_000_000, 3_000_000, 4_000_000)
_STAGES = dict.fromkeys(("of a later version", *Latency.__struct_fields__[::-1]), _TAKES)


def _metrics(at_s: float, dropped: int, instance: str = "a", sources: int = 2) -> Metrics:
    row = SourceMetrics(
        state="up",
        captured_fps=10,
        published_fps=9,
        captured=0,
        published=0,
        dropped=Dropped(superseded=dropped),
        in_flight=0,
        latency=_STAGES,
    )
    return Metrics(
        instance=instance,
        index=0,
        at=round(at_s * _S),
        interval_s=1,
        uptime_s=at_s,
        fps=18.0,
        latency=_STAGES,
        sources={f"cam-{number}": row for number in range(sources)},
        process=ProcessMetrics(10.0, 1000, 5, 9),
        gpus=None,
        gpus_reason="none",
        publisher=PublisherMetrics(0, 10, 1),
    )


def _size(thing: Any) -> int:
    """Bytes of a structure of plain values."""
    rows: list[Any] = []
    if isinstance(thing, dict):
        rows = [*thing.keys(), *thing.values()]
    elif isinstance(thing, tuple | list | deque):
        rows = [*thing]
    elif isinstance(thing, msgspec.Struct):
        rows = [getattr(thing, name) for name in thing.__struct_fields__]
    elif hasattr(thing, "__dict__"):
        rows = [*vars(thing).values()]
    return sys.getsizeof(thing) + sum(map(_size, rows))


def test_an_hour_of_a_large_daemon_is_small() -> None:
    figures = Figures()
    for second in range(2 * 3600):
        figures.add(_metrics(second, second, sources=150))
    series = figures.document()["series"]
    assert 3500 <= series["t"][-1] - series["t"][0] <= 3600
    assert len(series["t"]) == len(series["stages"]["infer"]["p99"]) == len(series["gpu"]) <= 1201
    assert (series["latency_p50_ms"][0], series["latency_p99_ms"][0]) == (1.0, 3.0)
    assert [*series["stages"]] == ["decode", "wait", "preprocess", "infer", "postprocess"]  # as a frame passes them
    assert series["dropped_per_s"][-1] == 150
    assert _size(figures._samples) < 2 << 20
    assert _size(figures._minute) < 2 << 20


def test_drops_are_those_of_the_last_minute_and_hour() -> None:
    figures = Figures()
    for second in range(0, 300, 5):
        figures.add(_metrics(second, 0 if second < 200 else second - 200))
    assert figures.drops_per_minute("cam-0") == {"superseded": 60.0}
    assert figures.drops_per_minute("none") == {}
    assert figures.document()["drops"] == {"superseded": 2 * 95}
    figures.add(_metrics(300, 7, instance="b"))
    assert figures.drops_per_minute("cam-0") == {}  # it cannot be known yet
    assert figures.document()["drops"] == {"superseded": 2 * (95 + 7)}


def test_history_goes_over_a_restart_and_shows_gaps() -> None:
    figures = Figures()
    for second in range(0, 60, 3):
        figures.add(_metrics(second, 10 * second))
    for second in range(120, 150, 3):  # away for a minute
        figures.add(_metrics(second, 10 * (second - 120), instance="b"))
    for second in range(210, 240, 3):  # the same run: its reports did not come
        figures.add(_metrics(second, 10 * (second - 120), instance="b"))
    series = figures.document()["series"]
    assert series["t"] == sorted(series["t"])
    assert (series["t"][0], series["t"][-1], len(series["t"])) == (0, 237, 20 + 10 + 10 + 2)
    gaps = [at for at, fps in zip(series["t"], series["fps"]) if fps is None]
    assert gaps == [(57 + 120) / 2, (147 + 210) / 2]
    # No rate across a gap: 20 frames/s of two sources while reports came.
    rates = [rate for rate in series["dropped_per_s"] if rate is not None]
    assert set(rates) == {20.0}
    assert len(rates) == 19 + 9 + 9
    figures.add(_metrics(30, 0, instance="b"))  # the clock is set back
    assert figures.document()["series"]["t"][-1] == 30


def _detections(at_s: float, tracks: range, instance: str = "a") -> Detections:
    return Detections(
        instance=instance,
        source="cam",
        session="s",
        seq=0,
        index=0,
        pts=None,
        captured_at=round(at_s * _S),
        clock=FrameClock("arrival"),
        image=ImageSize(200, 100),
        model=Model("m", "0", "fp32", "cpu"),
        detections=[Detection("car", 0, 0.9, (0.0, 0.0, 100.0, 50.0), track_id=id) for id in tracks],
        latency=Latency(0, 0, 0, 0, 0, 0),
        dropped=Dropped(),
    )


def test_tracks_are_those_of_the_last_minute() -> None:
    tracks = Tracks()
    for tenth in range(1200):
        tracks.add(_detections(1000 + tenth / 10, range(1, 3)))
    found = tracks.document(60)
    assert [row["track"] for row in found["tracks"]] == [1, 2]
    points = found["tracks"][0]["points"]
    assert points[0][1:] == (0.25, 0.5, 0.0, 0.5)
    assert tracks.document(60)["image"] == (200, 100)
    assert 59 <= points[-1][0] - points[0][0] <= 60
    assert len(tracks.document(10)["tracks"][0]["points"]) < len(points) / 5
    for number in range(100):
        tracks.add(_detections(2000 + number, range(1000 * number + 1, 1000 * number + 500)))
    assert len(tracks._points) <= 6000
    assert len(tracks._labels) <= len(tracks._last) <= 6000
    tracks.add(_detections(3000, range(7, 8), instance="b"))
    assert [row["track"] for row in tracks.document(60)["tracks"]] == [7]
