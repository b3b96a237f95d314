"""The outcome of a calibration, and the choice of a precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from calibration.bootstrap import Interval, Ruling
from calibration.evaluator import Score
from calibration.frames import FrameSet
from calibration.placement_search import PlacementTrial
from calibration.sensitivity import Cost, Step
from calibration.speed import Speed
from detectors.port import Precision

Lower = Literal["fp16", "fp8", "int8"]
LOWER: tuple[Lower, ...] = ("fp16", "fp8", "int8")  # from high to low
_MIN_SPEEDUP = 1.03  # against the next higher precision, to be chosen over it


@dataclass(frozen=True)
class Trial:
    """The trial of one precision. Names of fields are keys of calibration.json.

    Attributes:
        reason: of the ruling, one line.
        file: name of the file to deploy, in the folder or the float model's; None unless accepted.
        value: AP, or the share of matched boxes; `least` is the lowest value within the budget.
        interval: of the loss; None if not evaluated.
        more: estimate of how many more photos, or blocks of time, would decide.
        aim: target value while choosing method and float layers, on pictures other than those of `value`.
        methods: score of each method of finding ranges.
        placements: tried placements of INT8, the chosen one first.
        layers: number of layers in this precision; `float_layers` were restored to float for the budget.
        steps: tries of restoring layers.
        costs: of the most sensitive layers.
        portable: problems of the file for each reader.
        worst: file names of pictures with the largest differences.
    """

    precision: Precision
    ruling: Ruling
    reason: str
    file: str | None = None
    value: float | None = None
    least: float | None = None
    interval: Interval | None = None
    more: int | None = None
    score: Score | None = None
    aim: float | None = None
    methods: dict[str, float] = field(default_factory=dict)
    method: str | None = None
    placements: list[PlacementTrial] = field(default_factory=list)
    layers: int = 0
    float_layers: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    portable: dict[str, list[str]] = field(default_factory=dict)
    worst: list[str] = field(default_factory=list)
    speed: Speed | None = None

    @property
    def accepted(self) -> bool:
        return self.ruling == "accepted"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a calibration. Names of fields are keys of calibration.json.

    Attributes:
        chosen: the precision to run.
        why: one line.
        budget: the allowed loss.
        steering: names of the pictures for choosing methods and float layers.
        judging: names of the other pictures, which alone give the rulings.
    """

    model: str
    backend: str
    measure: str
    trials: list[Trial]
    chosen: Precision
    why: str
    budget: float
    steering: list[str]
    judging: list[str]
    frames: FrameSet


def decide(trials: Sequence[Trial], requested: Lower | Literal["auto"]) -> tuple[Precision, str]:
    """The precision to run, and why: the requested one if accepted; for auto, the highest that no lower one beats."""
    passed = [trial for trial in trials if trial.accepted]
    refused = "; ".join(_not_taken(trial) for trial in trials if not trial.accepted)
    if requested != "auto":
        trial = next(trial for trial in trials if trial.precision == requested)
        if not trial.accepted:
            return "fp32", f"{requested}: {trial.reason}"
        times = _fps(trial) / _fps(trials[0])
        return requested, f"{trial.reason}; {times:.2f} times as fast as fp32 here"
    if len(passed) == 1:
        return "fp32", f"nothing lower passes: {refused}"
    best, why = passed[0], []
    for trial in passed[1:]:
        times, surely = trial.speed.over(best.speed) if trial.speed and best.speed else (0.0, False)
        if times >= _MIN_SPEEDUP and surely:
            best = trial
        else:
            less = "no faster" if times < _MIN_SPEEDUP else "not surely faster"
            why.append(f"{trial.precision} passes but is {less} than {best.precision} here ({times:.2f} times)")
    first = f"{best.precision} is the fastest that passes: {_fps(best):,.0f} frames/s"
    return best.precision, "; ".join([first, *why, *filter(None, [refused])])


def exit_code(trials: Sequence[Trial], requested: Lower | Literal["auto"]) -> int:
    """0 if the requested precision is accepted, 1 if it is refused, 3 if it is undecided.

    For auto: 3 if no lower precision is accepted and one is undecided, else 0, because fp32 may be deployed.
    """
    lower = [trial.ruling for trial in trials if trial.precision in LOWER]
    if requested == "auto":
        return 3 if "undecided" in lower and "accepted" not in lower else 0
    ruling = next(trial.ruling for trial in trials if trial.precision == requested)
    return {"accepted": 0, "refused": 1, "undecided": 3}[ruling]


def _not_taken(trial: Trial) -> str:
    addition = " (undecided counts as refused)" if trial.ruling == "undecided" else ""
    return f"{trial.precision}: {trial.reason}{addition}"


def _fps(trial: Trial) -> float:
    return trial.speed.fps if trial.speed else 0.0
