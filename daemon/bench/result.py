"""The report file of a benchmark: settings, environment and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal, get_args

import msgspec

from daemon.bench.load import Load
from daemon.bench.run import ModelFigures, Run
from daemon.commands.report.environment import Environment, collect_environment
from daemon.errors import LookoutError
from detectors.port import is_address

Kind = Literal["run", "search"]
Schema = Literal["lookout.bench/2"]
_KINDS = {"replay": "run", "peers": "run", "sweep": "search", "capacity": "search"}  # of lookout.bench/1


@dataclass(frozen=True)
class Case:
    """One configuration and its repeats. Names of fields are keys of the report file.

    Attributes:
        load: see `daemon.bench.load.Load`.
        copies: concurrent daemons; a repeat has one run of each.
        failed: why there are no runs.
        kept: whether the constraints were met, in a search for the most sources.
    """

    load: dict[str, Any]
    repeats: list[list[Run]] = field(default_factory=list)
    copies: int = 1
    failed: str | None = None
    kept: bool | None = None

    @property
    def models(self) -> list[str]:
        """The names of several models; empty where there is one."""
        return [*self.load["models"]]

    def values(self, name: str, model: str | None = None) -> list[float]:
        """A metric's values, without repeats that lack it; see METRICS.

        Args:
            model: the name of one of several; None for all together.
        """
        found = [METRICS[name].of(_of_model(runs, model)) for runs in self.repeats]
        return [value for value in found if value is not None]

    def value(self, name: str, model: str | None = None) -> float | None:
        """The median of a metric; see `values`."""
        values = self.values(name, model)
        return median(values) if values else None


@dataclass(frozen=True)
class Peer:
    """Another program on the same recording, or a limit of the hardware.

    Attributes:
        note: how it was run, or why not.
    """

    name: str
    kind: Literal["peer", "limit"]
    fps: list[float]
    note: str


@dataclass(frozen=True)
class Accuracy:
    """COCO AP from `lookout evaluate`, with the same model and backend."""

    ap: float
    ap50: float
    images: int


@dataclass(frozen=True)
class HardwareRates:
    """Rates of the GPU's parts alone.

    Attributes:
        decode_fps: decoded pictures, with a session per source.
        engine_fps: images in full batches.
    """

    decode_fps: float
    engine_fps: float


@dataclass(frozen=True)
class Constraints:
    """Constraints of a search for the most sources.

    Attributes:
        dropped_percent: maximum, of captured frames.
        p50_ms, p99_ms: maxima, from due to sent.
        confirm_s: length of the confirming run; 0 for that of all others.
    """

    dropped_percent: float = 0.1
    p50_ms: float = 15.0
    p99_ms: float = 40.0
    confirm_s: float = 0.0

    def met(self, run: Run) -> bool:
        """Whether a run has met them, and so has each of several models."""
        rows: list[Run | ModelFigures] = [run, *run.models.values()]
        return run.up == run.sources and all(map(self._met, rows))

    def _met(self, row: Run | ModelFigures) -> bool:
        latency = row.latency_ms or {"p50": float("inf"), "p99": float("inf")}
        return (
            row.dropped_share * 100 <= self.dropped_percent
            and latency["p50"] <= self.p50_ms
            and latency["p99"] <= self.p99_ms
        )


@dataclass(frozen=True)
class Report:
    """The content of a report file."""

    kind: Kind
    environment: Environment
    cases: list[Case]
    peers: list[Peer] = field(default_factory=list)
    accuracy: Accuracy | None = None
    limits: HardwareRates | None = None
    constraints: Constraints | None = None
    schema: Schema = "lookout.bench/2"

    @property
    def remarks(self) -> list[str]:
        """Warnings about the figures."""
        return [remark for case in self.cases for remark in _remarks(case)]


@dataclass(frozen=True)
class Metric:
    """One figure of a repeat.

    Attributes:
        sign: 1 if higher is better, -1 if lower is.
        path: of the field in a run.
        copies: how to combine concurrent daemons: worst, sum, or share: for a shared total that each divided by its own
            frames (energy), recomputed over all frames.
    """

    title: str
    unit: str
    sign: int
    path: str
    copies: Literal["worst", "sum", "share"] = "worst"

    def of(self, runs: Sequence[Run | ModelFigures]) -> float | None:
        """The repeat's value; None if no run has it."""
        values = [value for value in (_value_at(run, self.path) for run in runs) if value is not None]
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
    "cpu": Metric("CPU", "ms/frame", -1, "usage.cpu_ms_per_frame"),
    "rss": Metric("RSS", "MiB", -1, "usage.rss_mib"),
    "gpu_memory": Metric("GPU memory", "MiB", -1, "gpu_mib"),
    "joules": Metric("energy", "J/frame", -1, "joules_per_frame", "share"),
    "start": Metric("first detections", "s", -1, "start_up.first_detections_s"),
}


def settings_of(load: Load) -> dict[str, Any]:
    """A load's settings for a report: names of files without folders, URLs without passwords."""
    rows = {item.name: getattr(load, item.name) for item in fields(load) if item.name not in ("cache", "warm_up")}
    named = {name: value.name for name, value in rows.items() if isinstance(value, Path)}
    models = {name: path.name for name, path in load.models.items()}
    return {
        **rows,
        **named,
        "models": models,
        "clips": [clip.name if isinstance(clip, Path) else str(clip) for clip in load.clips],
    }


def environment_of(load: Load) -> Environment:
    """The present environment, with hashes of clips and models."""
    clips = [clip for clip in dict.fromkeys(load.clips) if isinstance(clip, Path)]
    models = [path for path in dict.fromkeys(load.model_files) if not is_address(path)]
    return collect_environment([*clips, *models], load.device)


def read(path: Path) -> Report:
    """Read a report file, also of the former version.

    Raises:
        LookoutError: it cannot be read, or is not a report.
    """
    try:
        raw = msgspec.json.decode(path.read_bytes())
        report = msgspec.convert(_upgraded(raw) if isinstance(raw, dict) else raw, Report)
    except OSError as error:
        raise LookoutError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise LookoutError(f"{path} is not a file of lookout bench ({get_args(Schema)[0]}): {error}") from error
    # Settings added later have their defaults.
    usual = settings_of(Load(()))
    return replace(report, cases=[replace(case, load={**usual, **case.load}) for case in report.cases])


def _upgraded(raw: dict[str, Any]) -> dict[str, Any]:
    """A lookout.bench/1 file in today's form; other files unchanged."""
    if raw.get("schema") != "lookout.bench/1":
        return raw
    for case in raw["cases"]:
        case["load"] = {**case["load"], "clips": [case["load"].pop("clip")], "phase": 0.0}
        for run in (run for repeat in case["repeats"] for run in repeat):
            run.update(warm_up=run.pop("warmth"), watts_per_source=run.pop("watts_per_stream"))
    constraints = raw.pop("promise", None)
    return {**raw, "schema": "lookout.bench/2", "kind": _KINDS.get(raw["kind"]), "constraints": constraints}


def write(path: Path, report: Report) -> None:
    """Write a report as JSON.

    Raises:
        LookoutError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    except OSError as error:
        raise LookoutError(f"{path} cannot be written: {error.strerror}") from error


def _of_model(runs: Sequence[Run], model: str | None) -> Sequence[Run | ModelFigures]:
    return runs if model is None else [run.models[model] for run in runs if model in run.models]


def _value_at(run: Run | ModelFigures, path: str) -> float | None:
    value: Any = run
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
    return None if value is None else float(value)


def name_of(load: dict[str, Any]) -> str:
    """A load in short."""
    models = f", models {' and '.join(load['models'])}" if load["models"] else ""
    batches = f"batches up to {load['batch'] or load['max_batch']}"
    return f"{load['sources']} sources, {load['lanes']} lanes, {batches}{models}"


def _remarks(case: Case) -> list[str]:
    runs = [run for repeat in case.repeats for run in repeat]
    found = [f"failed: {case.failed}"] if case.failed else []
    if throttled := sorted({reason for run in runs for reason in run.usage.throttled}):
        found.append(f"the GPU's clock was throttled by {', '.join(throttled)}")
    if any(run.busy_before for run in runs) and case.copies == 1:
        found.append("another process used the GPU")
    if count := sum(not run.warm_up.steady for run in runs):
        found.append(f"throughput and p99 were not steady at the start of {count} of {len(runs)} runs")
    if count := sum(run.steady is False for run in runs):
        found.append(f"throughput or p99 was not steady during {count} of {len(runs)} runs")
    if any(run.up < run.sources for run in runs):
        found.append("not every source published frames")
    if any(run.unaccounted for run in runs):
        found.append("some frames are unaccounted for")
    if any(run.received_share < 1 for run in runs):
        found.append("the subscriber did not receive every message")
    if runs and len(case.repeats) < 5:
        found.append("fewer than 5 repeats, so that the spread says little")
    return [f"{name_of(case.load)}: {remark}" for remark in found]
