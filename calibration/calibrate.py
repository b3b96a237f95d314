"""From frames to a model in lower precision that has shown what it costs, or to a refusal that says why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, Literal, cast

import numpy.typing as npt
import onnx

from calibration import fp8
from calibration.evaluate import Truth
from calibration.frames import Frames, FrameSet
from calibration.graph import Graph, copy_of, quantised_layers
from calibration.judge import ByFloatModel, ByLabels, Judge, Open, Photos, Score, split
from calibration.outcome import LOWER, Lower, Outcome, Trial, decide
from calibration.overflow import overflow_of
from calibration.pictures import save_worst
from calibration.placement import Kind, Placement
from calibration.placing import Placing, Tried
from calibration.portable import READERS, problems
from calibration.quantize import METHODS, Method, load, observe, quantize, targets
from calibration.sensitivity import costs, half_costs, parts_of
from calibration.speed import Energy, race
from calibration.steering import Stage, Steering
from detectors.factory import engine_store
from detectors.half import keep_in_fp32, to_half
from detectors.model import sha256
from detectors.port import Detector, DetectorError, HostImage, Image, Options, Prepares
from detectors.verdict import Verdict, path_of, write

_FEW = 8  # frames that layers are compared on
_LEAST_SEEN = 0.25  # objects a frame; layers that never see any are not measured on what they are for
_RACING = 32  # pictures that speed is measured with


@dataclass(frozen=True)
class CalibrationConfig:
    """What to make and what it may cost.

    Attributes:
        options: the float model, and how it will be run.
        precision: or auto: all that can be had, and the fastest that passes.
        folder: of what is written.
        labelled: photos and annotations, or None.
        method: of finding ranges; auto tries each and takes the best.
        placement: of INT8; auto searches for the fastest where the backend tells what each layer takes.
        judge_share: of labelled photos, those that judge; the others choose the method and steer the mending.
        max_ap_drop: with labels.
        min_agreement: without.
        most_float: of the layers, the share that may stay in float for the budget's sake.
        backend: name, for the report.

    Raises:
        DetectorError: all photos are to judge, and none is left to choose by.
    """

    options: Options
    precision: Lower | Literal["auto"]
    folder: Path
    labelled: tuple[Path, Path] | None = None
    method: Method | Literal["auto"] = "auto"
    placement: Kind | Literal["auto"] = "auto"
    max_ap_drop: float = 0.01
    min_agreement: float = 0.95
    most_float: float = 0.5
    backend: str = "cpu"
    judge_share: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.labelled and self.judge_share == 1 and (self.method == "auto" or self.most_float > 0):
            raise DetectorError("all photos can judge only where none has to choose: set --method, and --max-float 0")

    @property
    def budget(self) -> float:
        """The loss that is allowed."""
        return self.max_ap_drop if self.labelled else round(1 - self.min_agreement, 6)


class Calibration:
    """One run of `lookout calibrate`.

    Args:
        open_model: the backend that will run the model; judges, and steers what it takes to pass.
        open_cpu: onnxruntime, on which files are made and ranges chosen.
        frames: in `wishes.folder / "frames"`.
        energy: joules so far.
        stage: tells of progress.
        now: UTC, for verdicts.

    Raises:
        DetectorError: the model cannot be used, or was quantised before.
    """

    def __init__(
        self,
        wishes: CalibrationConfig,
        open_model: Open,
        open_cpu: Open,
        frames: FrameSet,
        energy: Energy,
        stage: Stage,
        now: str,
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
        with self._stage("the float model", 0):
            steering, judging = self._pictures()
            self._prepare_judges(steering, judging)
        with self._stage("frames", self._frames.count(held_out=False)) as advance:
            self._inputs = list(self._prepared(advance))
        trials = [self._reference()]
        wanted = LOWER if wishes.precision == "auto" else (wishes.precision,)
        trials += [self._try(precision) for precision in wanted]
        trials = self._timed(trials)
        chosen, why = decide(trials, wishes.precision)
        return Outcome(
            wishes.options.path.name, wishes.backend, self.judge.measure, trials, chosen, why, wishes.budget,
            list(steering.names), list(judging.names), self._frames,
        )  # fmt: skip

    def _pictures(self) -> tuple[Photos | Frames, Photos | Frames]:
        """Those that steer and those that judge. Without labels the frames that calibrate steer, too."""
        wishes, folder = self._wishes, self._folder / "frames"
        if wishes.labelled:
            return split(Truth(*wishes.labelled), wishes.judge_share, wishes.seed)
        judging = self._frames.part(folder, held_out=True)
        return self._frames.part(folder, held_out=False, most=max(1, len(judging))), judging

    def _prepare_judges(self, steering: Photos | Frames, judging: Photos | Frames) -> None:
        """One gives the rulings, one steers on the backend that will run, and one chooses ranges on the CPU."""
        wishes = self._wishes
        own = wishes.options if wishes.backend == "cpu" else replace(wishes.options, precision="fp32")
        self.judge = self._judge(self._open, own, judging)
        self._ranges = self._judge(self._open_cpu, wishes.options, steering) if steering else None
        judge = self._judge(self._open, own, steering) if steering and wishes.backend != "cpu" else self._ranges
        self._steering = Steering(judge, wishes.most_float, self._stage, self._forget)

    def _judge(self, opening: Open, reference: Options, pictures: Photos | Frames) -> Judge:
        if isinstance(pictures, Photos):
            return ByLabels(opening, reference, pictures, self._wishes.budget, self._wishes.seed)
        return ByFloatModel(opening, reference, pictures, self._wishes.budget, self._wishes.seed)

    def _prepared(self, advance: Callable[[], None]) -> Iterator[npt.NDArray[Any]]:
        """What the detector's own preprocessing makes of the frames."""
        with closing(self._open_cpu(self._wishes.options)) as detector, closing(detector.lane()) as lane:
            if not isinstance(lane, Prepares):
                raise DetectorError(f"the {detector.info.backend} backend does not show its inputs")
            batch: list[Image] = []
            boxes = 0
            for frame in self._frames.part(self._folder / "frames", held_out=False):
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
        return Trial("fp32", "accepted", "the model as it is", self._wishes.options.path.name, score.value, score=score)

    def _try(self, precision: Lower) -> Trial:
        """Make it, judge it, and leave it in the folder if it passes."""
        made = self._folder / f"{self._wishes.options.path.stem}.{precision}.onnx"
        for path in (made, path_of(made)):  # of an earlier run
            path.unlink(missing_ok=True)
        try:
            trial = {"fp16": self._fp16, "fp8": self._fp8, "int8": self._int8}[precision](made)
        except DetectorError as error:
            made.unlink(missing_ok=True)
            return Trial(precision, "refused", str(error))
        if not trial.accepted:
            made.unlink(missing_ok=True)
        return trial

    def _fp16(self, made: Path) -> Trial:
        """With what overflows in FP32, and what else it takes."""
        threads, parts = self._wishes.options.threads, parts_of(self._model)
        with self._stage("FP16", 0):
            overflow = overflow_of(self._model, self._inputs[:_FEW], threads)
            options = self._halved(overflow.nodes, made)
            short = self._steering.falls_short(options)
        trial = Trial("fp16", "refused", "", aim=self._steering.aim, layers=len(parts))
        keep = overflow.nodes
        if short:
            with self._stage("FP16: what each layer costs", len(parts)) as advance:
                ranked = half_costs(self._model, keep, self._inputs[:_FEW], threads, advance)

            def opened(layers: Sequence[str]) -> Options:
                return self._halved(keep.union(*(parts[name] for name in layers)), made)

            # Another backend takes minutes for a try, and TensorRT 8.6 does not read what to keep.
            trial = self._steering.mended(trial, ranked, opened, all_first=self._wishes.backend != "cpu")
            options = opened(trial.float_layers)
            keep = keep.union(*(parts[name] for name in trial.float_layers))
        floats = [layer for layer, nodes in parts.items() if nodes & keep]
        trial = replace(trial, layers=len(parts) - len(floats), float_layers=floats)
        trial = self._ruled("fp16", options, trial)
        if overflow.words and not trial.accepted:
            return replace(trial, reason=f"{overflow.words}; {trial.reason}")
        return trial

    def _halved(self, keep: frozenset[str], made: Path) -> Options:
        """How to open the model in FP16 with these nodes in FP32. The CPU takes FP16 from the file; another backend
        converts a float file itself, and reads in it what to keep.
        """
        options, model = self._wishes.options, copy_of(self._model)
        if self._wishes.backend == "cpu":
            onnx.save(to_half(model, keep), str(made))
            return replace(options, path=made)
        if not keep:
            return replace(options, precision="fp16")
        keep_in_fp32(model, keep)
        onnx.save(model, str(made))
        return replace(options, path=made, precision="fp16")

    def _fp8(self, made: Path) -> Trial:
        if self._wishes.backend == "cpu":
            raise DetectorError("the CPU computes no FP8")
        with self._stage("FP8", 0):
            model = fp8.to_fp8(self._model, self._inputs)
        onnx.save(model, str(made))
        portable: dict[str, list[str]] = {row: problems(model, row) for row in READERS if row != "8.6"}
        trial = Trial("fp8", "refused", "", layers=len(quantised_layers(Graph(model))), portable=portable)
        return self._ruled("fp8", replace(self._wishes.options, path=made), trial)

    def _int8(self, made: Path) -> Trial:
        """By the best of the methods, with the dearest layers in float where it takes that."""
        method, model, scores = self._best_of_methods(made)
        placed = self._placed(model, made)
        placement = placed[0].placement
        layers = len(targets(self._model))
        trial = Trial(
            "int8", "refused", "", aim=self._steering.aim, methods=scores, method=method, layers=layers,
            placements=placed,
        )  # fmt: skip

        def opened(floats: Sequence[str]) -> Options:
            onnx.save(placement.of(model, floats), str(made))
            return replace(self._wishes.options, path=made)

        with self._stage("INT8", 0):
            short = self._steering.falls_short(opened(()))
        if short:
            with self._stage("INT8: what each layer costs", layers) as advance:
                ranked = costs(self._model, model, self._inputs[:_FEW], self._wishes.options.threads, advance)
            trial = self._steering.mended(trial, ranked, opened)
        options, final = opened(trial.float_layers), placement.of(model, trial.float_layers)
        portable: dict[str, list[str]] = {reader: problems(final, reader) for reader in READERS}
        return self._ruled(
            "int8", options, replace(trial, portable=portable, layers=len(quantised_layers(Graph(final))))
        )

    def _placed(self, model: onnx.ModelProto, made: Path) -> list[Tried]:
        """The fastest placement of INT8, and then the others that were tried."""
        wishes = self._wishes
        if wishes.placement != "auto" or wishes.backend != "trt":
            return [Tried(Placement("layers" if wishes.placement == "auto" else wishes.placement), None)]
        with self._stage("INT8: where it is fast", 0) as advance:
            placing = Placing(self._open, self._model, wishes.options, made, advance)
            tried = placing.search(model)
        self._forget(placing.losers(tried[0].placement))
        return tried

    def _best_of_methods(self, made: Path) -> tuple[Method, onnx.ModelProto, dict[str, float]]:
        """The one that scores highest on the CPU, and what each scored."""
        options, wish = self._wishes.options, self._wishes.method
        with self._stage("INT8: what layers read", len(self._inputs)) as advance:
            seen = observe(self._model, self._inputs, options.threads, advance)
        methods = METHODS if wish == "auto" else (wish,)
        models = {method: quantize(self._model, seen.ranges(method)) for method in methods}
        scores: dict[str, float] = {}
        with self._stage("INT8: ranges", len(methods)) as advance:
            for method, model in models.items():
                if self._ranges:
                    onnx.save(model, str(made))
                    scores[method] = self._ranges.value(replace(options, path=made))
                advance()
        best = max(methods, key=lambda name: scores.get(name, 0.0))
        return best, models[best], scores

    def _ruled(self, precision: Lower, options: Options, trial: Trial) -> Trial:
        """Judged by the backend that will run it; the verdict goes beside the file."""
        with self._stage(f"{precision.upper()}: judging", 0):
            score, look = self.judge.judge(options)
        verdict = self._verdict(precision, options, score)
        worst = save_worst(
            self._folder / "worst", precision, self.judge.frames, (self.judge.true.found, look.found), look.differences,
            self._wishes.options.wanted.confidence,
        )  # fmt: skip
        if verdict.accepted and options.path != self._wishes.options.path:
            write(options.path, verdict)
        if self._wishes.backend != "cpu":
            engine_store(options.cache).judge(verdict)
        reason = verdict.finding
        if trial.float_layers:
            reason += f"; {len(trial.float_layers)} of {trial.layers + len(trial.float_layers)} layers are in float"
        return replace(
            trial, ruling=score.ruling, reason=reason, file=options.path.name if verdict.accepted else None,
            value=score.value, least=self.judge.least, interval=score.interval, more=verdict.more, score=score,
            worst=worst,
        )  # fmt: skip

    def _verdict(self, precision: Lower, options: Options, score: Score) -> Verdict:
        found = score.interval
        if found is None:
            raise ValueError("the float model itself has no verdict")
        return Verdict(
            onnx_sha256=sha256(options.path.read_bytes()),
            precision=precision,
            accepted=score.ruling == "accepted",
            measure=self.judge.measure,
            reference=self.judge.reference.value,
            value=score.value,
            least=self.judge.least,
            backend=self._wishes.backend,
            frames=len(self.judge.frames),
            at=self._now,
            ruling=score.ruling,
            drop=found.drop,
            low=found.low,
            high=found.high,
            units=found.units,
            unit=found.unit,
            budget=self._wishes.budget,
            more=self._to_give(score),
        )

    def _to_give(self, score: Score) -> int | None:
        """How many photos to give for so many more that judge; without labels all that are held out judge."""
        if score.ruling != "undecided" or score.more is None:
            return None
        return ceil(score.more / self._wishes.judge_share) if self._wishes.labelled else score.more

    def _forget(self, digests: set[str]) -> None:
        """Throw away engines of tries."""
        if self._wishes.backend != "cpu":
            store = engine_store(self._wishes.options.cache)
            for entry in store.entries():
                if entry.manifest and entry.manifest.recipe["onnx_sha256"] in digests:
                    store.remove(entry)

    def _timed(self, trials: list[Trial]) -> list[Trial]:
        """The accepted ones with their speed."""
        opened: dict[str, Detector] = {}
        files: dict[str, int] = {}
        frames = self.judge.frames
        pictures = [frames[number] for number in range(0, len(frames), max(1, len(frames) // _RACING))][:_RACING]
        with self._stage("speed, in turns", 0), ExitStack() as stack:
            for trial in trials:
                if trial.accepted and trial.file:
                    options = self._options_of(trial)
                    opened[trial.precision] = stack.enter_context(closing(self._open(options)))
                    files[trial.precision] = options.path.stat().st_size
            speeds = race(opened, files, pictures, self._energy) if len(opened) > 1 else {}
        return [replace(trial, speed=speeds.get(trial.precision)) for trial in trials]

    def _options_of(self, trial: Trial) -> Options:
        options = self._wishes.options
        if trial.file == options.path.name:
            return replace(options, precision=trial.precision, lanes=1)
        path = self._folder / cast("str", trial.file)
        # A file with FP16 layers kept in FP32 is a float file, of which another backend is told the precision.
        half = trial.precision == "fp16" and self._wishes.backend != "cpu"
        return replace(options, path=path, lanes=1, precision="fp16" if half else "auto")
