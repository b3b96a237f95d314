"""The file of a benchmark: what was run, on what, and everything that was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

import msgspec

from daemon.bench.load import Load
from daemon.bench.streams import Streams
from daemon.environment import Environment, found_out
from daemon.errors import LookoutError
from daemon.paths import demo_model
from daemon.redact import Url

SCHEMA = "lookout.bench/1"


@dataclass(frozen=True)
class Case:
    """One configuration and its repeats.

    Attributes:
        load: see `daemon.bench.load.Load`.
        copies: daemons at once; a repeat has a run of each.
        failed: why there are no runs.
        kept: of a search: whether it did what was asked.
    """

    load: dict[str, Any]
    repeats: list[list[Streams]] = field(default_factory=list)
    copies: int = 1
    failed: str | None = None
    kept: bool | None = None

    def values(self, name: str) -> list[float]:
        """A metric of each repeat, see METRICS; those that have it."""
        found = [METRICS[name].of(runs) for runs in self.repeats]
        return [value for value in found if value is not None]

    def value(self, name: str) -> float | None:
        """The median of the repeats."""
        values = self.values(name)
        return median(values) if values else None


@dataclass(frozen=True)
class Peer:
    """Something else over the same recording; a limit is a part of the hardware by itself.

    Attributes:
        note: how it was run, or why it was not.
    """

    name: str
    kind: Literal["peer", "limit"]
    fps: list[float]
    note: str


@dataclass(frozen=True)
class Accuracy:
    """By `lookout evaluate`, with the same model and backend."""

    ap: float
    ap50: float
    images: int


@dataclass(frozen=True)
class Report:
    """One file."""

    kind: Literal["replay", "sweep", "capacity", "peers"]
    environment: Environment
    cases: list[Case]
    peers: list[Peer] = field(default_factory=list)
    accuracy: Accuracy | None = None
    promise: dict[str, float] | None = None
    schema: Literal["lookout.bench/1"] = "lookout.bench/1"

    @property
    def remarks(self) -> list[str]:
        """What a reader must know before believing a figure."""
        return [remark for case in self.cases for remark in _remarks(case)]


@dataclass(frozen=True)
class Metric:
    """One figure of a repeat.

    Attributes:
        sign: 1 if more is better, -1 if less is.
        path: where a run has it.
        copies: of copies at once the worst; or their sum; or, where each has divided what all of them used by its own
            frames, what that is by the frames of all.
    """

    title: str
    unit: str
    sign: int
    path: str
    copies: Literal["worst", "sum", "share"] = "worst"

    def of(self, runs: Sequence[Streams]) -> float | None:
        """None if no run has it."""
        values = [value for value in (_look(run, self.path) for run in runs) if value is not None]
        if not values:
            return None
        if self.copies == "sum":
            return sum(values)
        if self.copies == "share":
            return 1 / sum(1 / value for value in values) if all(values) else 0.0
        return min(values) if self.sign > 0 else max(values)


METRICS = {
    "fps": Metric("throughput", "frames/s", 1, "fps", "sum"),
    "p50": Metric("latency p50", "ms", -1, "latency_ms.p50"),
    "p99": Metric("latency p99", "ms", -1, "latency_ms.p99"),
    "dropped": Metric("dropped", "of captured", -1, "dropped_share"),
    "cpu": Metric("CPU", "ms a frame", -1, "usage.cpu_ms_per_frame"),
    "rss": Metric("RSS", "MiB", -1, "usage.rss_mib"),
    "gpu_memory": Metric("GPU memory", "MiB", -1, "gpu_mib"),
    "joules": Metric("energy", "J a frame", -1, "joules_per_frame", "share"),
    "start": Metric("first detections", "s", -1, "start_up.first_detections_s"),
}


def load_of(load: Load) -> dict[str, Any]:
    """As it is written: paths by their names, which are the same elsewhere, and URLs without passwords."""
    rows = {item.name: getattr(load, item.name) for item in fields(load) if item.name not in ("cache", "warm_up")}
    named = {name: value.name for name, value in rows.items() if isinstance(value, Path)}
    return {**rows, **named, "clip": named.get("clip", str(load.clip))}


def environment_of(load: Load) -> Environment:
    """Found out now."""
    clips = [] if isinstance(load.clip, Url) else [load.clip]
    return found_out([*clips, load.model or demo_model()])


def read(path: Path) -> Report:
    """A file of `write`.

    Raises:
        LookoutError: it cannot be read, or is something else.
    """
    try:
        report = msgspec.json.decode(path.read_bytes(), type=Report)
    except OSError as error:
        raise LookoutError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise LookoutError(f"{path} is not a file of lookout bench ({SCHEMA}): {error}") from error
    # Settings that came later were then as they are by default.
    usual = load_of(Load(Path()))
    return replace(report, cases=[replace(case, load={**usual, **case.load}) for case in report.cases])


def write(path: Path, report: Report) -> None:
    """As JSON.

    Raises:
        LookoutError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    except OSError as error:
        raise LookoutError(f"{path} cannot be written: {error.strerror}") from error


def _look(run: Streams, path: str) -> float | None:
    value: Any = run
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else getattr(value, name)
    return None if value is None else float(value)


def _remarks(case: Case) -> list[str]:
    load = case.load
    name = f"{load['sources']} sources, {load['lanes']} lanes, batches up to {load['batch'] or load['max_batch']}"
    runs = [run for repeat in case.repeats for run in repeat]
    found = [f"{name}: failed: {case.failed}"] if case.failed else []
    if throttled := sorted({reason for run in runs for reason in run.usage.throttled}):
        found.append(f"{name}: the GPU's clock was held down by {', '.join(throttled)}")
    if any(run.busy_before for run in runs) and case.copies == 1:
        found.append(f"{name}: another process used the GPU")
    if any(not run.warmth.steady for run in runs):
        found.append(f"{name}: the rate was not steady when a run began")
    if any(run.warmth.up < run.sources for run in runs):
        found.append(f"{name}: not every source came up")
    if any(run.unaccounted for run in runs):
        found.append(f"{name}: frames are unaccounted for")
    if any(run.received_share < 1 for run in runs):
        found.append(f"{name}: the subscriber did not receive every message")
    if runs and len(case.repeats) < 5:
        found.append(f"{name}: fewer than 5 repeats, so that the spread says little")
    return found
