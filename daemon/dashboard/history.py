"""The page's memory of a daemon: figures of the last hour, and the places of objects in the last minute."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lookout.messages import Detections, Dropped, ImageSize, Latency, Metrics

_HOUR_NS = 3_600_000_000_000
_MINUTE_NS = 60_000_000_000
_MAX_SAMPLES = 1200  # of an hour
_MIN_STEP_NS = _HOUR_NS // _MAX_SAMPLES
_GAP = 3.0  # usual distances between two samples: more is a gap
_MAX_POINTS = 6000  # of one source
_POINT_NS = 150_000_000  # between two points of a track
_CAUSES = Dropped.__struct_fields__
_STAGES = Latency.__struct_fields__  # in the order of a frame's walk, and the total


@dataclass(frozen=True)
class _Sample:
    """The figures of one report that the page draws; a few hundred bytes, however many sources there are.

    Attributes:
        instance: the daemon's run, whose counters begin at 0.
        interval_s: between two reports.
        latency: 50th and 99th percentile of each of `_STAGES`, ms; None without a frame.
        dropped: frames of all sources, by cause.
        gpu: of the first GPU, by name of the series.
    """

    at: int
    instance: str
    interval_s: float
    fps: float
    cpu_percent: float
    rss_bytes: int
    outbox: int
    latency: tuple[tuple[float, float] | None, ...]
    dropped: tuple[int, ...]
    gpu: tuple[float | None, ...]


class Figures:
    """The figures of one daemon: an hour of all sources together, at most one sample every three seconds; and a minute
    of the drops of each source."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()
        self._minute: deque[tuple[int, dict[str, Dropped]]] = deque()  # UTC ns, and counters by source
        self.last: Metrics | None = None

    def add(self, metrics: Metrics) -> None:
        if self.last is not None and self.last.instance != metrics.instance:
            self._minute.clear()  # counters begin again
        self.last, at = metrics, metrics.at
        while self._samples and self._samples[-1].at > at:
            self._samples.pop()  # the clock was set back
        last = self._samples[-1] if self._samples else None
        if last is None or at - last.at >= _MIN_STEP_NS or last.instance != metrics.instance:
            self._samples.append(_sample(metrics))
            self._minute.append((at, {source: row.dropped for source, row in metrics.sources.items()}))
        while len(self._samples) > _MAX_SAMPLES or at - self._samples[0].at > _HOUR_NS:
            self._samples.popleft()
        while len(self._minute) > 1 and at - self._minute[1][0] >= _MINUTE_NS:
            self._minute.popleft()

    def drops_per_minute(self, source: str) -> dict[str, float]:
        """By cause, over the last minute; causes without a drop are left out."""
        now = self.last.sources.get(source) if self.last else None
        if self.last is None or now is None or not self._minute:
            return {}
        at, counters = self._minute[0]
        minutes = (self.last.at - at) / 60e9
        if minutes <= 0:
            return {}
        before = counters.get(source, Dropped())
        gone = {cause: _of(now.dropped, cause) - _of(before, cause) for cause in _CAUSES}
        return {cause: round(count / minutes, 1) for cause, count in gone.items() if count > 0}

    def document(self) -> dict[str, Any]:
        """Series over the last hour, and the last message. Where no report came, there is a moment without values."""
        rows = _with_gaps([*self._samples])
        series: dict[str, Any] = {
            "t": [round(at, 3) for at, _ in rows],
            "fps": [row and row.fps for _, row in rows],
            "latency_p50_ms": [row and _percentile(row, "total", 0) for _, row in rows],
            "latency_p99_ms": [row and _percentile(row, "total", 1) for _, row in rows],
            "dropped_per_s": _rates([row for _, row in rows]),
            "cpu_percent": [row and row.cpu_percent for _, row in rows],
            "memory": [row and row.rss_bytes for _, row in rows],
            "outbox": [row and row.outbox for _, row in rows],
        }
        known = {stage for _, row in rows if row for stage, found in zip(_STAGES, row.latency) if found}
        series["stages"] = {
            stage: {
                name: [row and _percentile(row, stage, place) for _, row in rows]
                for place, name in enumerate(("p50", "p99"))
            }
            for stage in _STAGES
            if stage in known and stage != "total"
        }
        for place, name in enumerate(_GPU):
            series[name] = [row and row.gpu[place] for _, row in rows]
        return {"series": series, "drops": self._drops(), "metrics": self.last}

    def _drops(self) -> dict[str, int]:
        """By cause, over the last hour, of all sources and of all runs of the daemon."""
        gone = dict.fromkeys(_CAUSES, 0)
        rows = [*self._samples]
        for before, now in itertools.pairwise(rows):
            earlier = before.dropped if before.instance == now.instance else (0,) * len(_CAUSES)
            for cause, first, last in zip(_CAUSES, earlier, now.dropped):
                gone[cause] += max(0, last - first)
        return {cause: count for cause, count in gone.items() if count > 0}


_Span = tuple[float, float, float, float]  # centre x, lower y, upper y, width


class Tracks:
    """Where the tracked objects of one source stood in the last minute."""

    def __init__(self) -> None:
        self._points: deque[tuple[int, int, _Span]] = deque()  # UTC ns, track
        self._image: tuple[int, int] | None = None  # size of the latest picture
        self._labels: dict[int, str] = {}
        self._last: dict[int, int] = {}  # UTC ns of each track's latest point
        self._instance = ""

    def add(self, message: Detections) -> None:
        """Take the place of each tracked box, in shares of the picture."""
        if message.instance != self._instance:
            self._points.clear()  # ids begin again
            self._labels.clear()
            self._last.clear()
            self._instance = message.instance
        at, image = message.captured_at, message.image
        self._image = image.width, image.height
        for row in message.detections:
            if row.track_id is None or at - self._last.get(row.track_id, 0) < _POINT_NS:
                continue
            self._last[row.track_id] = at
            self._labels[row.track_id] = row.track_label if isinstance(row.track_label, str) else row.label
            self._points.append((at, row.track_id, _span_of(row.box, image)))
        self._forget(at)

    def document(self, seconds: float) -> dict[str, Any]:
        """As `GET .../recent` shows it: a point is UTC seconds, centre x, lower y, upper y and width of a box."""
        rows: dict[int, list[tuple[float, ...]]] = {}
        newest = self._points[-1][0] if self._points else 0
        for at, track, place in self._points:
            if newest - at <= seconds * 1e9:
                rows.setdefault(track, []).append((at / 1e9, *place))
        tracks = [
            {"track": track, "label": self._labels.get(track), "points": points} for track, points in rows.items()
        ]
        covered = (newest - self._points[0][0]) / 1e9 if self._points else 0.0
        return {"tracks": tracks, "covered_s": round(covered, 1), "image": self._image}

    def _forget(self, now: int) -> None:
        points = self._points
        while points and (len(points) > _MAX_POINTS or now - points[0][0] > _MINUTE_NS):
            at, track, _ = points.popleft()
            if self._last.get(track) == at:  # its last one
                del self._last[track]
                self._labels.pop(track, None)


def _span_of(box: tuple[float, float, float, float], image: ImageSize) -> _Span:
    x1, y1, x2, y2 = box
    across, down = image.width, image.height
    return round((x1 + x2) / 2 / across, 5), round(y2 / down, 5), round(y1 / down, 5), round((x2 - x1) / across, 5)


_GPU = {
    "gpu": "utilisation",
    "decoder": "decoder_utilisation",
    "gpu_memory": "memory_used_bytes",
    "power": "power_w",
}


def _sample(metrics: Metrics) -> _Sample:
    gpu = metrics.gpus[0] if metrics.gpus else None
    found = [None if gpu is None else getattr(gpu, field) for field in _GPU.values()]
    return _Sample(
        at=metrics.at,
        instance=metrics.instance,
        interval_s=metrics.interval_s,
        fps=metrics.fps,
        cpu_percent=metrics.process.cpu_percent,
        rss_bytes=metrics.process.rss_bytes,
        outbox=metrics.publisher.outbox,
        latency=tuple(_percentiles(metrics, stage) for stage in _STAGES),
        dropped=tuple(sum(_of(row.dropped, cause) for row in metrics.sources.values()) for cause in _CAUSES),
        gpu=tuple(None if value is None else float(value) for value in found),
    )


def _percentiles(metrics: Metrics, stage: str) -> tuple[float, float] | None:
    found = (metrics.latency or {}).get(stage)
    return None if found is None else (_ms(found.p50), _ms(found.p99))


def _ms(duration_ns: int) -> float:
    return round(duration_ns / 1e6, 3)


def _percentile(row: _Sample, stage: str, place: int) -> float | None:
    found = row.latency[_STAGES.index(stage)]
    return None if found is None else found[place]


def _with_gaps(rows: Sequence[_Sample]) -> list[tuple[float, _Sample | None]]:
    """Samples with their times, UTC, s; and a moment without one in each gap, so that nothing is drawn across."""
    found: list[tuple[float, _Sample | None]] = []
    for number, row in enumerate(rows):
        before = rows[number - 1] if number else None
        if before is not None:
            apart = (row.at - before.at) / 1e9
            usual = max(row.interval_s, before.interval_s, _MIN_STEP_NS / 1e9)
            if apart > _GAP * usual or row.instance != before.instance:
                found.append((before.at / 1e9 + apart / 2, None))
        found.append((row.at / 1e9, row))
    return found


def _rates(rows: Sequence[_Sample | None]) -> list[float | None]:
    """Dropped frames a second between each sample and the one before."""
    rates: list[float | None] = [None] * min(1, len(rows))
    for before, now in itertools.pairwise(rows):
        seconds = (now.at - before.at) / 1e9 if before and now else 0.0
        if before is None or now is None or seconds <= 0:
            rates.append(None)
        else:
            rates.append(round(max(0, sum(now.dropped) - sum(before.dropped)) / seconds, 2))
    return rates


def _of(dropped: Dropped, cause: str) -> int:
    count: int = getattr(dropped, cause)
    return count
