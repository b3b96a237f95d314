"""The page's memory of a daemon: figures of the last hour, and the places of objects in the last minute."""

from __future__ import annotations

from collections import deque
from typing import Any

from daemon.messages import Detections, Dropped, Metrics

_HOUR_NS = 3_600_000_000_000
_MINUTE_NS = 60_000_000_000
_MAX_SAMPLES = 1200  # of an hour
_MIN_STEP_NS = _HOUR_NS // _MAX_SAMPLES
_MAX_POINTS = 20_000  # of one source
_POINT_NS = 100_000_000  # between two points of a track
_CAUSES = Dropped.__struct_fields__


class Figures:
    """The figures of one daemon, at most one sample every three seconds."""

    def __init__(self) -> None:
        self._samples: deque[Metrics] = deque()
        self.last: Metrics | None = None

    def add(self, metrics: Metrics) -> None:
        if self.last is not None and self.last.instance != metrics.instance:
            self._samples.clear()  # counters begin again
        self.last = metrics
        rows = self._samples
        if not rows or metrics.at - rows[-1].at >= _MIN_STEP_NS:
            rows.append(metrics)
        while rows and (len(rows) > _MAX_SAMPLES or rows[-1].at - rows[0].at > _HOUR_NS):
            rows.popleft()

    def drops_per_minute(self, source: str) -> dict[str, float]:
        """By cause, over the last minute; causes without a drop are left out."""
        now = self.last.sources.get(source) if self.last else None
        if self.last is None or now is None:
            return {}
        at = self.last.at
        then = next((row for row in reversed(self._samples) if at - row.at >= _MINUTE_NS), None) or self._samples[0]
        before, minutes = then.sources.get(source), max((at - then.at) / 60e9, 1e-9)
        if at <= then.at:
            return {}
        gone = {cause: _of(now.dropped, cause) - (_of(before.dropped, cause) if before else 0) for cause in _CAUSES}
        return {cause: round(count / minutes, 1) for cause, count in gone.items() if count > 0}

    def document(self) -> dict[str, Any]:
        """Series over the last hour, and the last message."""
        rows = [*self._samples]
        series: dict[str, Any] = {
            "t": [row.at / 1e9 for row in rows],
            "fps": [row.fps for row in rows],
            "latency_p50_ms": [_ms(row, "total", "p50") for row in rows],
            "latency_p99_ms": [_ms(row, "total", "p99") for row in rows],
            "dropped_per_s": _rates(rows),
            "cpu_percent": [row.process.cpu_percent for row in rows],
            "memory": [row.process.rss_bytes for row in rows],
            "outbox": [row.publisher.outbox for row in rows],
        }
        stages = sorted({stage for row in rows for stage in row.latency or ()} - {"total"})
        series["stages"] = {
            stage: {name: [_ms(row, stage, name) for row in rows] for name in ("p50", "p99")} for stage in stages
        }
        for name, field in _GPU.items():
            series[name] = [_gpu(row, field) for row in rows]
        return {"series": series, "drops": self._drops(), "processes": self._processes(), "metrics": self.last}

    def _drops(self) -> dict[str, int]:
        """By cause, over the last hour, of all sources."""
        if not self._samples or self.last is None:
            return {}
        first, totals = self._samples[0], dict.fromkeys(_CAUSES, 0)
        for source, row in self.last.sources.items():
            before = first.sources.get(source)
            for cause in _CAUSES:
                totals[cause] += _of(row.dropped, cause) - (_of(before.dropped, cause) if before else 0)
        return {cause: count for cause, count in totals.items() if count > 0}

    def _processes(self) -> list[Any]:
        return [self.last.process] if self.last else []


class Tracks:
    """Where the tracked objects of one source stood in the last minute."""

    def __init__(self) -> None:
        self._points: deque[tuple[int, int, float, float]] = deque()  # UTC ns, track, x, y
        self._labels: dict[int, str] = {}
        self._last: dict[int, int] = {}  # UTC ns of each track's latest point
        self._instance = ""

    def add(self, message: Detections) -> None:
        """Take the lower middle of each tracked box, in shares of the picture."""
        if message.instance != self._instance:
            self._points.clear()  # ids begin again
            self._labels.clear()
            self._last.clear()
            self._instance = message.instance
        at, width, height = message.captured_at, message.image.width, message.image.height
        for row in message.detections:
            if row.track_id is None or at - self._last.get(row.track_id, 0) < _POINT_NS:
                continue
            self._last[row.track_id] = at
            self._labels[row.track_id] = row.track_label if isinstance(row.track_label, str) else row.label
            x1, _, x2, y2 = row.box
            self._points.append((at, row.track_id, round((x1 + x2) / 2 / width, 5), round(y2 / height, 5)))
        self._forget(at)

    def document(self, seconds: float) -> dict[str, Any]:
        rows: dict[int, list[tuple[float, float, float]]] = {}
        newest = self._points[-1][0] if self._points else 0
        for at, track, x, y in self._points:
            if newest - at <= seconds * 1e9:
                rows.setdefault(track, []).append((at / 1e9, x, y))
        tracks = [
            {"track": track, "label": self._labels.get(track), "points": points} for track, points in rows.items()
        ]
        covered = (newest - self._points[0][0]) / 1e9 if self._points else 0.0
        return {"tracks": tracks, "covered_s": round(covered, 1)}

    def _forget(self, now: int) -> None:
        points = self._points
        while points and (len(points) > _MAX_POINTS or now - points[0][0] > _MINUTE_NS):
            _, track, _, _ = points.popleft()
            if now - self._last.get(track, 0) > _MINUTE_NS:
                self._last.pop(track, None)
                self._labels.pop(track, None)


_GPU = {
    "gpu": "utilisation",
    "decoder": "decoder_utilisation",
    "gpu_memory": "memory_used_bytes",
    "power": "power_w",
}


def _gpu(row: Metrics, field: str) -> float | None:
    """Of the first GPU."""
    found = getattr(row.gpus[0], field) if row.gpus else None
    return None if found is None else float(found)


def _ms(row: Metrics, stage: str, name: str) -> float | None:
    found = (row.latency or {}).get(stage)
    return None if found is None else round(getattr(found, name) / 1e6, 3)


def _rates(rows: list[Metrics]) -> list[float | None]:
    """Dropped frames a second between each sample and the one before."""
    totals = [sum(_of(row.dropped, cause) for row in each.sources.values() for cause in _CAUSES) for each in rows]
    rates: list[float | None] = [None] * min(1, len(rows))
    for number in range(1, len(rows)):
        seconds = (rows[number].at - rows[number - 1].at) / 1e9
        rates.append(round(max(0, totals[number] - totals[number - 1]) / seconds, 2) if seconds > 0 else None)
    return rates


def _of(dropped: Dropped, cause: str) -> int:
    count: int = getattr(dropped, cause)
    return count
