"""From frames to a model in lower precision that has shown what it costs, or to a refusal that says why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
import onnx

from calibration import fp8
from calibration.frames import FrameSet
from calibration.graph import Graph, quantised_layers, with_float_layers
from calibration.judge import Judge, Open, Score
from calibration.pictures import save_worst
from calibration.portable import READERS, problems
from calibration.quantize import METHODS, Method, load, observe, quantize, session_of, targets, with_outputs
from calibration.sensitivity import Cost, Step, costs, restore
from calibration.speed import Energy, Speed, race
from detectors.factory import engine_store
from detectors.half import tail, to_half
from detectors.model import sha256
from detectors.port import Detector, DetectorError, HostImage, Image, Options, Precision
from detectors.verdict import Verdict, path_of, write

Lower = Literal["fp16", "fp8", "int8"]
LOWER: tuple[Lower, ...] = ("fp16", "fp8", "int8")  # each lower than the one before
_FP16_MOST = float(np.finfo(np.float16).max)
_FEW = 8  # frames that layers are compared on
_WORTH = 1.03  # times as fast as the higher precision, or it is not worth anything
_KEPT_COSTS = 20
_LEAST_SEEN = 0.25  # objects a frame; layers that never see any are not measured on what they are for

Stage = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
"""Says what begins and of how many steps, 0 if nobody knows; what it gives is called after each."""


@dataclass(frozen=True)
class Wishes:
    """What to make and what it may cost.

    Attributes:
        options: the float model, and how it will be run.
        precision: or auto: all that can be had, and the fastest that passes.
        folder: of what is written.
        labelled: photos and annotations, or None.
        method: of finding ranges; auto tries each and takes the best.
        max_ap_drop: with labels.
        min_agreement: without.
        most_float: of the layers, the share that may stay in float for the budget's sake.
        backend: name, for the report.
    """

    options: Options
    precision: Lower | Literal["auto"]
    folder: Path
    labelled: tuple[Path, Path] | None = None
    method: Method | Literal["auto"] = "auto"
    max_ap_drop: float = 0.01
    min_agreement: float = 0.95
    most_float: float = 0.5
    backend: str = "cpu"


@dataclass(frozen=True)
class Trial:
    """One precision.

    Attributes:
        reason: why it was accepted or refused, in a line.
        file: what to deploy: the name of a file in the folder, or of the float model itself; None if refused.
        value: AP, or the share that agrees; `least` was asked for.
        methods: of finding ranges, what each scored.
        layers: that compute on integers; `float_layers` were put back for the budget's sake.
        steps: the tries that it took.
        costs: of the dearest layers.
        portable: what a version of TensorRT would misread; empty lists where nothing.
        worst: pictures.
    """

    precision: Precision
    accepted: bool
    reason: str
    file: str | None = None
    value: float | None = None
    least: float | None = None
    score: Score | None = None
    methods: dict[str, float] = field(default_factory=dict)
    method: str | None = None
    layers: int = 0
    float_layers: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    portable: dict[str, list[str]] = field(default_factory=dict)
    worst: list[str] = field(default_factory=list)
    speed: Speed | None = None


@dataclass(frozen=True)
class Outcome:
    """Everything.

    Attributes:
        chosen: the precision to run.
        why: in a line.
    """

    model: str
    backend: str
    measure: str
    trials: list[Trial]
    chosen: Precision
    why: str
    frames: FrameSet


@runtime_checkable
class _Prepares(Protocol):
    """A lane that shows what it would give its model."""

    def preprocess(self, images: Sequence[Image]) -> npt.NDArray[Any]: ...


class Calibration:
    """One run of `lookout calibrate`.

    Args:
        open_model: the backend that will run the model; decides.
        open_cpu: onnxruntime, on which files are made and tried.
        frames: in `wishes.folder / "frames"`.
        energy: joules so far.
        stage: tells of progress.
        now: UTC, for verdicts.

    Raises:
        DetectorError: the model cannot be used, or was quantised before.
    """

    def __init__(
        self, wishes: Wishes, open_model: Open, open_cpu: Open, frames: FrameSet, energy: Energy, stage: Stage, now: str
    ) -> None:
        self._wishes, self._open, self._open_cpu = wishes, open_model, open_cpu
        self._frames, self._energy, self._stage, self._now = frames, energy, stage, now
        self._folder = wishes.folder
        self._model = load(wishes.options.path)
        self._inputs: list[npt.NDArray[Any]] = []

    def run(self) -> Outcome:
        """Make, try, decide and write.

        Raises:
            DetectorError: the float model cannot be judged by what was given.
        """
        wishes = self._wishes
        held_out = list(self._frames.read(self._folder / "frames", held_out=True))
        with self._stage("the float model", 0):
            self._cpu_judge = self._judge(self._open_cpu, wishes.options, held_out)
            self.judge = self._cpu_judge
            if wishes.backend != "cpu":
                self.judge = self._judge(self._open, replace(wishes.options, precision="fp32"), held_out)
        with self._stage("frames", self._frames.count(held_out=False)) as advance:
            self._inputs = list(self._prepared(advance))
        trials = [self._reference()]
        wanted = LOWER if wishes.precision == "auto" else (wishes.precision,)
        trials += [self._try(precision) for precision in wanted]
        trials = self._timed(trials)
        chosen, why = decide(trials, wishes.precision)
        return Outcome(wishes.options.path.name, wishes.backend, self.judge.measure, trials, chosen, why, self._frames)

    def _judge(self, opening: Open, reference: Options, held_out: list[npt.NDArray[np.uint8]]) -> Judge:
        wishes = self._wishes
        budget = wishes.max_ap_drop if wishes.labelled else wishes.min_agreement
        return Judge(opening, reference, held_out, wishes.labelled, budget, wishes.options.wanted.confidence)

    def _prepared(self, advance: Callable[[], None]) -> Iterator[npt.NDArray[Any]]:
        """What the detector's own preprocessing makes of the frames."""
        with closing(self._open_cpu(self._wishes.options)) as detector, closing(detector.lane()) as lane:
            if not isinstance(lane, _Prepares):
                raise DetectorError(f"the {detector.info.backend} backend does not show its inputs")
            batch: list[Image] = []
            boxes = 0
            for frame in self._frames.read(self._folder / "frames", held_out=False):
                batch.append(HostImage(frame))
                if len(batch) == detector.info.max_batch:
                    yield lane.preprocess(batch).copy()
                    boxes += sum(map(len, lane.detect(batch)[0]))
                    batch.clear()
                advance()
        count = self._frames.count(held_out=False)
        if boxes < _LEAST_SEEN * count:
            raise DetectorError(
                f"the float model sees {boxes} objects in {count} frames to calibrate with: "
                "give frames of what it will see, with objects of its classes"
            )

    def _reference(self) -> Trial:
        score = self.judge.reference
        return Trial("fp32", True, "the model as it is", self._wishes.options.path.name, score.value, score=score)

    def _try(self, precision: Lower) -> Trial:
        """Make it, judge it, and leave it in the folder if it passes."""
        made = self._folder / f"{self._wishes.options.path.stem}.{precision}.onnx"
        for path in (made, path_of(made)):  # of an earlier run
            path.unlink(missing_ok=True)
        try:
            trial = {"fp16": self._fp16, "fp8": self._fp8, "int8": self._int8}[precision](made)
        except DetectorError as error:
            made.unlink(missing_ok=True)
            return Trial(precision, False, str(error))
        if not trial.accepted:
            made.unlink(missing_ok=True)
        return trial

    def _fp16(self, made: Path) -> Trial:
        with self._stage("FP16", 0):
            self._check_range()
            options = self._wishes.options
            if self._wishes.backend == "cpu":
                onnx.save(to_half(_copy(self._model)), str(made))
                options = replace(options, path=made)
            else:
                options = replace(options, precision="fp16")
            return self._ruled("fp16", options, Trial("fp16", False, "", layers=len(Graph(self._model).weighted)))

    def _fp8(self, made: Path) -> Trial:
        if self._wishes.backend == "cpu":
            raise DetectorError("the CPU computes no FP8")
        with self._stage("FP8", 0):
            model = fp8.to_fp8(self._model, self._inputs)
            onnx.save(model, str(made))
            portable: dict[str, list[str]] = {row: problems(model, row) for row in READERS if row != "8.6"}
            trial = Trial("fp8", False, "", layers=len(quantised_layers(Graph(model))), portable=portable)
            return self._ruled("fp8", replace(self._wishes.options, path=made), trial)

    def _int8(self, made: Path) -> Trial:
        wishes = self._wishes
        with self._stage("INT8: what layers read", len(self._inputs)) as advance:
            seen = observe(self._model, self._inputs, wishes.options.threads, advance)
        methods = METHODS if wishes.method == "auto" else (wishes.method,)
        tried: dict[Method, tuple[float, onnx.ModelProto]] = {}
        with self._stage("INT8: ranges", len(methods)) as advance:
            for method in methods:
                model = quantize(self._model, seen.ranges(method))
                tried[method] = (self._value(model, made), model)
                advance()
        method = max(tried, key=lambda name: tried[name][0])
        value, model = tried[method]
        trial = Trial(
            "int8",
            False,
            "",
            methods={name: score for name, (score, _) in tried.items()},
            method=method,
            layers=len(targets(self._model)),
        )
        if value < self._cpu_judge.least:
            trial, model = self._mend(trial, model, made)
        onnx.save(model, str(made))
        trial = replace(trial, portable={reader: problems(model, reader) for reader in READERS})
        return self._ruled("int8", replace(wishes.options, path=made), trial)

    def _mend(self, trial: Trial, model: onnx.ModelProto, made: Path) -> tuple[Trial, onnx.ModelProto]:
        """Put the dearest layers back to float, as few as will do."""
        with self._stage("INT8: what each layer costs", trial.layers) as advance:
            ranked = costs(self._model, model, self._inputs[:_FEW], self._wishes.options.threads, advance)
        most = max(1, int(self._wishes.most_float * trial.layers))
        with self._stage("INT8: dear layers back to float", 0) as advance:

            def score(layers: Sequence[str]) -> float:
                advance()
                return self._value(with_float_layers(model, layers), made)

            count, steps = restore(ranked[:most], score, self._cpu_judge.least)
        floats = [cost.layer for cost in ranked[: most if count is None else count]]
        trial = replace(
            trial, layers=trial.layers - len(floats), float_layers=floats, steps=steps, costs=ranked[:_KEPT_COSTS]
        )
        return trial, with_float_layers(model, floats)

    def _value(self, model: onnx.ModelProto, scratch: Path) -> float:
        onnx.save(model, str(scratch))
        return self._cpu_judge.value(replace(self._wishes.options, path=scratch))

    def _ruled(self, precision: Lower, options: Options, trial: Trial) -> Trial:
        """Judged by the backend that will run it; the verdict goes beside the file."""
        judge = self.judge
        score, look = judge.judge(options)
        accepted = score.value >= judge.least
        figures = f"{judge.measure} {score.value:.4f}, {judge.least:.4f} at least"
        reason = f"passes: {figures}" if accepted else f"refused: {figures}"
        if trial.float_layers:
            reason += f", with {len(trial.float_layers)} of {trial.layers + len(trial.float_layers)} layers in float"
        worst = save_worst(
            self._folder / "worst", precision, judge.frames, (judge.true.found, look.found), look.differences,
            self._wishes.options.wanted.confidence,
        )  # fmt: skip
        verdict = self._verdict(precision, options, score, accepted=accepted)
        if accepted and options.path != self._wishes.options.path:
            write(options.path, verdict)
        if self._wishes.backend != "cpu":
            engine_store(options.cache).judge(verdict)
        file = options.path.name if accepted else None
        return replace(
            trial, accepted=accepted, reason=reason, file=file, value=score.value, least=judge.least, score=score,
            worst=worst,
        )  # fmt: skip

    def _verdict(self, precision: Lower, options: Options, score: Score, *, accepted: bool) -> Verdict:
        return Verdict(
            onnx_sha256=sha256(options.path.read_bytes()),
            precision=precision,
            accepted=accepted,
            measure=self.judge.measure,
            reference=self.judge.reference.value,
            value=score.value,
            least=self.judge.least,
            backend=self._wishes.backend,
            frames=len(self.judge.frames),
            at=self._now,
        )

    def _check_range(self) -> None:
        """Nothing that is to be FP16 may be larger than FP16 knows."""
        graph = Graph(self._model)
        after = tail(self._model.graph)
        floats = [node for number, node in enumerate(graph.nodes) if number not in after and node.op_type != "Constant"]
        makers = {node.output[0]: node for node in floats}
        session = session_of(with_outputs(self._model, list(makers)), self._wishes.options.threads)
        names = [entry.name for entry in session.get_outputs() if entry.name in makers and "float" in entry.type]
        for batch in self._inputs[:_FEW]:
            for name, values in zip(names, session.run(names, {self._model.graph.input[0].name: batch})):
                largest = float(np.abs(values).max(initial=0.0))
                if not largest <= _FP16_MOST:
                    raise DetectorError(
                        f"FP16 overflows at {graph.layer_of(makers[name])}: it reaches {largest:.3g} and may be 65504"
                    )

    def _timed(self, trials: list[Trial]) -> list[Trial]:
        """The accepted ones with their speed."""
        opened: dict[str, Detector] = {}
        files: dict[str, int] = {}
        with self._stage("speed, in turns", 0), ExitStack() as stack:
            for trial in trials:
                if trial.accepted and trial.file:
                    options = self._options_of(trial)
                    opened[trial.precision] = stack.enter_context(closing(self._open(options)))
                    files[trial.precision] = options.path.stat().st_size
            speeds = race(opened, files, self._energy) if len(opened) > 1 else {}
        return [replace(trial, speed=speeds.get(trial.precision)) for trial in trials]

    def _options_of(self, trial: Trial) -> Options:
        options = self._wishes.options
        if trial.file == options.path.name:
            return replace(options, precision=trial.precision, lanes=1)
        return replace(options, path=self._folder / cast("str", trial.file), lanes=1)


def decide(trials: Sequence[Trial], wish: Lower | Literal["auto"]) -> tuple[Precision, str]:
    """What to run, and why: what was wished if it passed; of all that passed, the highest that none lower beats."""
    passed = [trial for trial in trials if trial.accepted]
    refused = "; ".join(f"{trial.precision} {trial.reason}" for trial in trials if not trial.accepted)
    if wish != "auto":
        trial = next(trial for trial in trials if trial.precision == wish)
        if not trial.accepted:
            return "fp32", refused
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


def _fps(trial: Trial) -> float:
    return trial.speed.fps if trial.speed else 0.0


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy
