"""What came of a calibration, and which precision to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from calibration.bootstrap import Interval, Ruling
from calibration.frames import FrameSet
from calibration.judge import Score
from calibration.placing import Tried
from calibration.sensitivity import Cost, Step
from calibration.speed import Speed
from detectors.port import Precision

Lower = Literal["fp16", "fp8", "int8"]
LOWER: tuple[Lower, ...] = ("fp16", "fp8", "int8")  # each lower than the one before
_WORTH = 1.03  # times as fast as the higher precision, or it is not worth anything


@dataclass(frozen=True)
class Trial:
    """One precision.

    Attributes:
        reason: for the ruling, in a line.
        file: what to deploy: the name of a file in the folder, or of the float model itself; None unless accepted.
        value: AP, or the share that agrees; `least` keeps to the budget.
        interval: of the loss; None where nothing was judged.
        more: about how many more photos, or blocks of time, to give for a decision.
        aim: that choosing and mending went for, on other photos than those of `value`.
        methods: of finding ranges, what each scored on those.
        placements: of INT8, the one that was taken first.
        layers: that compute in this precision; `float_layers` were put back for the budget's sake.
        steps: the tries that it took.
        costs: of the dearest layers.
        portable: what each reader of such files would misread; empty lists where nothing.
        worst: pictures.
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
    placements: list[Tried] = field(default_factory=list)
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
    """Everything.

    Attributes:
        chosen: the precision to run.
        why: in a line.
        budget: the loss that was allowed.
        steering: names of the pictures that methods were chosen and layers mended by.
        judging: names of the others, which alone gave the rulings.
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


def decide(trials: Sequence[Trial], wish: Lower | Literal["auto"]) -> tuple[Precision, str]:
    """What to run, and why: what was wished if it passed; of all that passed, the highest that none lower beats."""
    passed = [trial for trial in trials if trial.accepted]
    refused = "; ".join(_not_taken(trial) for trial in trials if not trial.accepted)
    if wish != "auto":
        trial = next(trial for trial in trials if trial.precision == wish)
        if not trial.accepted:
            return "fp32", f"{wish}: {trial.reason}"
        times = _fps(trial) / _fps(trials[0])
        return wish, f"{trial.reason}; {times:.2f} times as fast as fp32 here"
    if len(passed) == 1:
        return "fp32", f"nothing lower passes: {refused}"
    best, why = passed[0], []
    for trial in passed[1:]:
        times, surely = trial.speed.over(best.speed) if trial.speed and best.speed else (0.0, False)
        if times >= _WORTH and surely:
            best = trial
        else:
            less = "no faster" if times < _WORTH else "not surely faster"
            why.append(f"{trial.precision} passes and is {less} than {best.precision} here ({times:.2f} times)")
    first = f"{best.precision} is the fastest that passes: {_fps(best):,.0f} frames/s"
    return best.precision, "; ".join([first, *why, *filter(None, [refused])])


def exit_code(trials: Sequence[Trial], wish: Lower | Literal["auto"]) -> int:
    """0 if what was wished may be deployed, 1 if it was refused, 3 if that is undecided.

    For auto, 3 if no lower precision was accepted and one of them is undecided, otherwise 0: fp32 may be deployed.
    """
    lower = [trial.ruling for trial in trials if trial.precision in LOWER]
    if wish == "auto":
        return 3 if "undecided" in lower and "accepted" not in lower else 0
    ruling = next(trial.ruling for trial in trials if trial.precision == wish)
    return {"accepted": 0, "refused": 1, "undecided": 3}[ruling]


def _not_taken(trial: Trial) -> str:
    addition = " (undecided counts as refused)" if trial.ruling == "undecided" else ""
    return f"{trial.precision}: {trial.reason}{addition}"


def _fps(trial: Trial) -> float:
    return trial.speed.fps if trial.speed else 0.0
