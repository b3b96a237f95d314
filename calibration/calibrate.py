"""From frames to a model in lower precision with a measured accuracy, or to a refusal with its reason."""

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
from calibration.classes import ClassEvaluator, LabelledPictures, split_pictures
from calibration.coco import Truth
from calibration.evaluator import AgreementEvaluator, Evaluator, LabelEvaluator, OpenDetector, Photos, Score, split
from calibration.frames import Frames, FrameSet
from calibration.graph import Graph, copy_of, quantised_layers
from calibration.outcome import LOWER, Lower, Outcome, Trial, decide
from calibration.overflow import overflow_of
from calibration.pictures import save_worst
from calibration.placement import Kind, Placement
from calibration.placement_search import PlacementSearch, PlacementTrial
from calibration.portable import READERS, problems
from calibration.quantize import METHODS, Method, load, observe, quantize, targets
from calibration.restoration import ProgressTask, Restoration
from calibration.sensitivity import costs, half_costs, parts_of
from calibration.speed import Energy, measure_speeds
from detectors.accuracy_record import AccuracyRecord, path_of, write
from detectors.factory import check_backend_precision, engine_store
from detectors.half import keep_in_fp32, to_half
from detectors.model import digest_of
from detectors.port import Detector, DetectorError, HostImage, Image, Options, Prepares

_COMPARED_FRAMES = 8  # frames for comparing layers
_MIN_OBJECTS_PER_FRAME = 0.25  # below it, layers are not measured on objects
_TIMED_FRAMES = 32  # frames for measuring speed
_Pictures = Photos | LabelledPictures | Frames


@dataclass(frozen=True)
class CalibrationConfig:
    """A model to make, and the accuracy it may lose.

    Attributes:
        options: the float model, and how it will run.
        precision: one precision, or auto: try all and choose the fastest that passes.
        folder: output folder.
        labelled: photos and annotations; None without labels.
        classes: labelled pictures of a classifier, see `classification.labelled`; None without labels.
        method: how INT8 ranges are found; auto tries each and takes the best.
        placement: of INT8 layers; auto searches for the fastest if the backend reports kernel times.
        test_share: share of the labelled photos that give the rulings; the others choose method and float layers.
        max_ap_drop: the budget with labels.
        max_top1_drop: the budget of a classifier with labels.
        min_agreement: the budget without labels.
        max_float: largest share of the layers that may stay in float.
        backend: name for the report.

    Raises:
        DetectorError: all photos are test photos, and none is left to choose by.
    """

    options: Options
    precision: Lower | Literal["auto"]
    folder: Path
    labelled: tuple[Path, Path] | None = None
    classes: Path | None = None
    method: Method | Literal["auto"] = "auto"
    placement: Kind | Literal["auto"] = "auto"
    max_ap_drop: float = 0.01
    max_top1_drop: float = 0.01
    min_agreement: float = 0.95
    max_float: float = 0.5
    backend: str = "cpu"
    test_share: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.has_labels and self.test_share == 1 and (self.method == "auto" or self.max_float > 0):
            raise DetectorError("--judge-share 1 leaves no photos to choose by: set --method and --max-float 0 as well")

    @property
    def has_labels(self) -> bool:
        return self.labelled is not None or self.classes is not None

    @property
    def budget(self) -> float:
        """The allowed loss."""
        if self.classes:
            return self.max_top1_drop
        return self.max_ap_drop if self.labelled else round(1 - self.min_agreement, 6)


class Calibration:
    """One run of `lookout calibrate`.

    Args:
        open_model: opens models on the backend that will run them.
        open_cpu: opens models on onnxruntime, which chooses ranges.
        frames: the manifest of `config.folder / "frames"`.
        energy: joules used so far.
        progress: reports progress.
        now: UTC, for accuracy records.

    Raises:
        DetectorError: the model cannot be used, or is already quantised.
    """

    def __init__(
        self,
        config: CalibrationConfig,
        open_model: OpenDetector,
        open_cpu: OpenDetector,
        frames: FrameSet,
        energy: Energy,
        progress: ProgressTask,
        now: str,
    ) -> None:
        self._config, self._open, self._open_cpu = config, open_model, open_cpu
        self._frames, self._energy, self._progress, self._now = frames, energy, progress, now
        self._folder = config.folder
        self._model = load(config.options.path)
        self._inputs: list[npt.NDArray[Any]] = []

    def run(self) -> Outcome:
        """Make, evaluate, decide and write.

        Raises:
            DetectorError: the float model cannot be evaluated with this data.
        """
        config = self._config
        with self._progress("the float model", 0):
            tuning, test = self._pictures()
            self._prepare_evaluators(tuning, test)
        with self._progress("frames", self._frames.count(held_out=False)) as advance:
            self._inputs = list(self._prepared(advance))
        trials = [self._reference()]
        wanted = LOWER if config.precision == "auto" else (config.precision,)
        trials += [self._make(precision) for precision in wanted]
        trials = self._with_speeds(trials)
        chosen, why = decide(trials, config.precision)
        return Outcome(
            config.options.path.name, config.backend, self.evaluator.measure, trials, chosen, why, config.budget,
            list(tuning.names), list(test.names), self._frames,
        )  # fmt: skip

    def _pictures(self) -> tuple[_Pictures, _Pictures]:
        """Pictures for choosing, and pictures for rulings. Without labels, calibration frames are for choosing."""
        config, folder = self._config, self._folder / "frames"
        if config.classes:
            return split_pictures(config.classes, config.test_share, config.seed)
        if config.labelled:
            return split(Truth(*config.labelled), config.test_share, config.seed)
        test = self._frames.part(folder, held_out=True)
        return self._frames.part(folder, held_out=False, limit=max(1, len(test))), test

    def _prepare_evaluators(self, tuning: _Pictures, test: _Pictures) -> None:
        """One evaluator gives rulings, one restores layers on the final backend, one chooses ranges on the CPU."""
        config = self._config
        own = config.options if config.backend == "cpu" else replace(config.options, precision="fp32")
        self.evaluator = self._evaluator_for(self._open, own, test)
        self._ranges = self._evaluator_for(self._open_cpu, config.options, tuning) if tuning else None
        evaluator = self._evaluator_for(self._open, own, tuning) if tuning and config.backend != "cpu" else self._ranges
        self._restoration = Restoration(evaluator, config.max_float, self._progress, self._remove_engines)

    def _evaluator_for(self, opening: OpenDetector, reference: Options, pictures: _Pictures) -> Evaluator:
        if reference.head == "classify" and not isinstance(pictures, Photos):
            return ClassEvaluator(opening, reference, pictures, self._config.budget, self._config.seed)
        if isinstance(pictures, LabelledPictures):
            raise DetectorError("labelled classes are for a classifier: its head must be classify")
        if isinstance(pictures, Photos):
            return LabelEvaluator(opening, reference, pictures, self._config.budget, self._config.seed)
        return AgreementEvaluator(opening, reference, pictures, self._config.budget, self._config.seed)

    def _prepared(self, advance: Callable[[], None]) -> Iterator[npt.NDArray[Any]]:
        """The frames after the detector's own preprocessing, a batch at a time."""
        with closing(self._open_cpu(self._config.options)) as detector, closing(detector.lane()) as lane:
            if not isinstance(lane, Prepares):
                raise DetectorError(f"the {detector.info.backend} backend has no access to its preprocessed input")
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
        if boxes < _MIN_OBJECTS_PER_FRAME * count:
            raise DetectorError(
                f"the float model sees only {boxes} objects in {count} calibration frames: "
                "give frames from your cameras, with objects of the model's classes"
            )

    def _reference(self) -> Trial:
        score = self.evaluator.reference
        return Trial("fp32", "accepted", "the model as it is", self._config.options.path.name, score.value, score=score)

    def _make(self, precision: Lower) -> Trial:
        """Make one precision, evaluate it, and keep its file if it is accepted."""
        made = self._folder / f"{self._config.options.path.stem}.{precision}.onnx"
        for path in (made, path_of(made)):  # of an earlier run
            path.unlink(missing_ok=True)
        try:
            check_backend_precision(self._config.backend, precision)
            trial = {"fp16": self._fp16, "fp8": self._fp8, "int8": self._int8}[precision](made)
        except DetectorError as error:
            made.unlink(missing_ok=True)
            return Trial(precision, "refused", str(error))
        if not trial.accepted:
            made.unlink(missing_ok=True)
        return trial

    def _fp16(self, made: Path) -> Trial:
        """FP16, with overflowing nodes in FP32, and more layers if the budget needs it."""
        threads, parts = self._config.options.threads, parts_of(self._model)
        with self._progress("FP16", 0):
            overflow = overflow_of(self._model, self._inputs[:_COMPARED_FRAMES], threads)
            options = self._halved(overflow.nodes, made)
            short = self._restoration.falls_short(options)
        trial = Trial("fp16", "refused", "", aim=self._restoration.aim, layers=len(parts))
        keep = overflow.nodes
        if short:
            with self._progress("FP16: sensitivity of each layer", len(parts)) as advance:
                ranked = half_costs(self._model, keep, self._inputs[:_COMPARED_FRAMES], threads, advance)

            def options_for(layers: Sequence[str]) -> Options:
                return self._halved(keep.union(*(parts[name] for name in layers)), made)

            # On another backend one try takes minutes, and TensorRT 8.6 ignores the list of FP32 nodes.
            trial = self._restoration.restore(trial, ranked, options_for, all_first=self._config.backend != "cpu")
            options = options_for(trial.float_layers)
            keep = keep.union(*(parts[name] for name in trial.float_layers))
        floats = [layer for layer, nodes in parts.items() if nodes & keep]
        trial = replace(trial, layers=len(parts) - len(floats), float_layers=floats)
        trial = self._evaluated("fp16", options, trial)
        if overflow.message and not trial.accepted:
            return replace(trial, reason=f"{overflow.message}; {trial.reason}")
        return trial

    def _halved(self, keep: frozenset[str], made: Path) -> Options:
        """Options for the model in FP16 with these nodes in FP32. The CPU backend needs an FP16 file; another backend
        converts the float file itself, and reads from it which nodes stay FP32.
        """
        options, model = self._config.options, copy_of(self._model)
        if self._config.backend == "cpu":
            onnx.save(to_half(model, keep), str(made))
            return replace(options, path=made)
        if not keep:
            return replace(options, precision="fp16")
        keep_in_fp32(model, keep)
        onnx.save(model, str(made))
        return replace(options, path=made, precision="fp16")

    def _fp8(self, made: Path) -> Trial:
        if self._config.backend == "cpu":
            raise DetectorError("the CPU has no FP8 arithmetic")
        with self._progress("FP8", 0):
            model = fp8.to_fp8(self._model, self._inputs)
        onnx.save(model, str(made))
        portable: dict[str, list[str]] = {row: problems(model, row) for row in READERS if row != "8.6"}
        trial = Trial("fp8", "refused", "", layers=len(quantised_layers(Graph(model))), portable=portable)
        return self._evaluated("fp8", replace(self._config.options, path=made), trial)

    def _int8(self, made: Path) -> Trial:
        """INT8 by the best method, with the most sensitive layers in float if the budget needs it."""
        method, model, scores = self._best_of_methods(made)
        placed = self._placed(model, made)
        placement = placed[0].placement
        layers = len(targets(self._model))
        trial = Trial(
            "int8", "refused", "", aim=self._restoration.aim, methods=scores, method=method, layers=layers,
            placements=placed,
        )  # fmt: skip

        def options_for(floats: Sequence[str]) -> Options:
            onnx.save(placement.of(model, floats), str(made))
            return replace(self._config.options, path=made)

        with self._progress("INT8", 0):
            short = self._restoration.falls_short(options_for(()))
        if short:
            with self._progress("INT8: sensitivity of each layer", layers) as advance:
                inputs, threads = self._inputs[:_COMPARED_FRAMES], self._config.options.threads
                ranked = costs(self._model, model, inputs, threads, advance)
            trial = self._restoration.restore(trial, ranked, options_for)
        options, final = options_for(trial.float_layers), placement.of(model, trial.float_layers)
        portable: dict[str, list[str]] = {reader: problems(final, reader) for reader in READERS}
        return self._evaluated(
            "int8", options, replace(trial, portable=portable, layers=len(quantised_layers(Graph(final))))
        )

    def _placed(self, model: onnx.ModelProto, made: Path) -> list[PlacementTrial]:
        """The tried placements of INT8, the fastest first."""
        config = self._config
        if config.placement != "auto" or config.backend != "trt":
            return [PlacementTrial(Placement("layers" if config.placement == "auto" else config.placement), None)]
        with self._progress("INT8: placement search", 0) as advance:
            placing = PlacementSearch(self._open, self._model, config.options, made, advance)
            tried = placing.search(model)
        self._remove_engines(placing.rejected(tried[0].placement))
        return tried

    def _best_of_methods(self, made: Path) -> tuple[Method, onnx.ModelProto, dict[str, float]]:
        """The method with the highest score on the CPU, its model, and each method's score."""
        options, requested = self._config.options, self._config.method
        with self._progress("INT8: histograms", len(self._inputs)) as advance:
            seen = observe(self._model, self._inputs, options.threads, advance)
        methods = METHODS if requested == "auto" else (requested,)
        models = {method: quantize(self._model, seen.ranges(method)) for method in methods}
        scores: dict[str, float] = {}
        with self._progress("INT8: ranges", len(methods)) as advance:
            for method, model in models.items():
                if self._ranges:
                    onnx.save(model, str(made))
                    scores[method] = self._ranges.value(replace(options, path=made))
                advance()
        best = max(methods, key=lambda name: scores.get(name, 0.0))
        return best, models[best], scores

    def _evaluated(self, precision: Lower, options: Options, trial: Trial) -> Trial:
        """The trial with its ruling, evaluated on the final backend; writes the accuracy record beside the file."""
        with self._progress(f"{precision.upper()}: evaluation", 0):
            score, predictions = self.evaluator.evaluate(options)
        record = self._accuracy_record(precision, options, score)
        worst = save_worst(
            self._folder / "worst", precision, self.evaluator.frames, (self.evaluator.true.found, predictions.found),
            predictions.differences, self._config.options.wanted.confidence,
        )  # fmt: skip
        if record.accepted and options.path != self._config.options.path:
            write(options.path, record)
        if self._config.backend != "cpu":
            engine_store(options.cache).add_accuracy_record(record)
        reason = record.finding
        if trial.float_layers:
            reason += f"; {len(trial.float_layers)} of {trial.layers + len(trial.float_layers)} layers are in float"
        return replace(
            trial, ruling=score.ruling, reason=reason, file=options.path.name if record.accepted else None,
            value=score.value, least=self.evaluator.least, interval=score.interval, more=record.more, score=score,
            worst=worst,
        )  # fmt: skip

    def _accuracy_record(self, precision: Lower, options: Options, score: Score) -> AccuracyRecord:
        found = score.interval
        if found is None:
            raise ValueError("the float model itself has no accuracy record")
        return AccuracyRecord(
            onnx_sha256=digest_of(options.path),
            precision=precision,
            accepted=score.ruling == "accepted",
            measure=self.evaluator.measure,
            reference=self.evaluator.reference.value,
            value=score.value,
            least=self.evaluator.least,
            backend=self._config.backend,
            frames=len(self.evaluator.frames),
            at=self._now,
            ruling=score.ruling,
            drop=found.drop,
            low=found.low,
            high=found.high,
            units=found.units,
            unit=found.unit,
            budget=self._config.budget,
            more=self._frames_needed(score),
        )

    def _frames_needed(self, score: Score) -> int | None:
        """How many photos to add for `score.more` further test photos."""
        if score.ruling != "undecided" or score.more is None:
            return None
        return ceil(score.more / self._config.test_share) if self._config.has_labels else score.more

    def _remove_engines(self, digests: set[str]) -> None:
        """Remove the engines that were built for tries."""
        if self._config.backend != "cpu":
            store = engine_store(self._config.options.cache)
            for entry in store.entries():
                if entry.manifest and entry.manifest.recipe["onnx_sha256"] in digests:
                    store.remove(entry)

    def _with_speeds(self, trials: list[Trial]) -> list[Trial]:
        """The trials, with speed for the accepted ones."""
        opened: dict[str, Detector] = {}
        files: dict[str, int] = {}
        frames = self.evaluator.frames
        step = max(1, len(frames) // _TIMED_FRAMES)
        pictures = [frames[number] for number in range(0, len(frames), step)][:_TIMED_FRAMES]
        with self._progress("speed, interleaved", 0), ExitStack() as stack:
            for trial in trials:
                if trial.accepted and trial.file:
                    options = self._options_of(trial)
                    opened[trial.precision] = stack.enter_context(closing(self._open(options)))
                    files[trial.precision] = options.path.stat().st_size
            speeds = measure_speeds(opened, files, pictures, self._energy) if len(opened) > 1 else {}
        return [replace(trial, speed=speeds.get(trial.precision)) for trial in trials]

    def _options_of(self, trial: Trial) -> Options:
        options = self._config.options
        if trial.file == options.path.name:
            return replace(options, precision=trial.precision, lanes=1)
        path = self._folder / cast("str", trial.file)
        # A file with FP16 layers kept in FP32 is a float file; another backend needs the precision as an option.
        half = trial.precision == "fp16" and self._config.backend != "cpu"
        return replace(options, path=path, lanes=1, precision="fp16" if half else "auto")
