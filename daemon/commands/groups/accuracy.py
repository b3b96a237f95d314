"""Measure a model, and calibrate it for a lower precision."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from daemon.commands.groups.options import (
    CACHE,
    DEVICE,
    HEAD,
    INPUT_SIZE,
    LABELS,
    PRECISION,
    PROVIDER,
    PROVIDER_DEVICE,
    THREADS,
    examples,
    takes_builder_level,
    takes_semantics,
)
from daemon.commands.numbers import Number
from daemon.commands.paths import JSON_FILE, InputPath, OutputFolder
from daemon.errors import LookoutError
from daemon.progress import progress
from daemon.view_config import MIN_OVERLAP, tiles_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from calibration.calibrate import CalibrationConfig
    from calibration.views import ViewOptions
    from daemon.commands.mot import MotOptions
    from detectors.port import Detector, PostprocessParams
    from detectors.views import Tiling

    OpenModel = Callable[[], Detector]


@click.command(
    epilog=examples(
        "lookout evaluate --model yolox_s.onnx --labels coco --images val/ --annotations val.json",
        "lookout evaluate --model resnet18.onnx --classify photos/",
        "lookout evaluate --mot MOT17/train/",
    )
)
@click.option("--model", type=InputPath(), help="ONNX file.")
@click.option("--images", type=InputPath(), help="Folder of the photos.")
@click.option("--annotations", type=InputPath(), help="COCO ground truth, JSON.")
@click.option("--mot", type=InputPath(), help="Sequences in MOTChallenge's layout, for the tracker.")
@click.option("--classify", type=InputPath(), help="Pictures for a classifier: a folder for each class, or a CSV.")
@click.option("--tiles", multiple=True, help="Also AP with tiles, such as 2x2; may be given more than once.")
@click.option("--overlap", default=0.1, show_default=True, type=Number(MIN_OVERLAP, 0.5), help="Of tiles.")
@click.option("--whole/--no-whole", default=True, show_default=True, help="With tiles, the whole picture as well.")
@click.option(
    "--roi",
    nargs=4,
    type=Number(0, 1),
    help="Region of interest: left, top, right, bottom as shares of the picture. Objects outside do not count.",
)
@click.option("--drop", default="", help="With --mot, leave frames out: random:0.5, stride:5 or bursts:12/60.")
@LABELS
@HEAD
@takes_semantics
@click.option(
    "--backend", default="auto", show_default=True, type=click.Choice(["auto", "trt", "trt-rtx", "cpu", "triton"])
)
@PROVIDER
@PROVIDER_DEVICE
@click.option("--confidence", type=Number(0, 1), help="[default: 0.001, and 0.25 with --mot]")
@click.option("--iou", default=0.65, show_default=True, type=Number(0, 1), help="Of class-wise NMS.")
@click.option("--max-detections", default=300, show_default=True, type=click.IntRange(1))
@PRECISION
@click.option("--max-batch", default=1, show_default=True, type=click.IntRange(1, 256), help="Of the engine to judge.")
@takes_builder_level()
@CACHE
@DEVICE
@JSON_FILE
def evaluate(
    model: Path | None,
    images: Path | None,
    annotations: Path | None,
    mot: Path | None,
    classify: Path | None,
    tiles: tuple[str, ...],
    overlap: float,
    whole: bool,
    roi: tuple[float, float, float, float] | None,
    drop: str,
    confidence: float | None,
    iou: float,
    max_detections: int,
    json_file: Path | None,
    **chosen: Any,
) -> int:
    """COCO AP of a model over labelled photos, by the detector that `run` uses. With --tiles or --roi: also with them,
    beside whole pictures. With --mot: how well the tracker follows pedestrians, in boxes of det.txt, or of the model
    over img1. With --classify: top-1 and top-5 accuracy."""
    from daemon.config.root import LogConfig
    from daemon.log import logging
    from detectors.port import PostprocessParams
    from detectors.views import Limits

    if roi and not (roi[0] < roi[2] and roi[1] < roi[3]):
        raise click.UsageError("--roi: right must be above left, and bottom above top")

    with logging(LogConfig(format="console")), ExitStack() as opened:

        def open_model(threshold: float, *, multi_label: bool = False) -> Detector:
            wanted = PostprocessParams(threshold, iou, max_detections, multi_label=multi_label)
            head = "classify" if classify else chosen["head"]
            return opened.enter_context(closing(_open_model(model, head, wanted, chosen)))

        if mot is not None:
            from daemon.commands.mot import FLOOR, MotOptions

            options = MotOptions(mot, drop, 0.25 if confidence is None else confidence)
            _evaluate_tracks(options, (lambda: open_model(FLOOR)) if model else None, json_file)
        elif classify is not None:
            _evaluate_classes(classify, lambda: open_model(0.0), json_file)
        elif images is None or annotations is None:
            raise click.UsageError("give --images and --annotations, or --mot, or --classify")
        else:
            threshold = 0.001 if confidence is None else confidence
            labelled = (images, annotations)
            if tiles or roi:
                from calibration.views import ViewOptions

                views = ViewOptions(roi, _tilings(tiles, overlap, whole=whole), Limits(iou, max_detections))
                _evaluate_views(lambda: open_model(threshold, multi_label=True), labelled, views, json_file)
            else:
                _evaluate_boxes(lambda: open_model(threshold, multi_label=True), labelled, json_file)
    return 0


def _open_model(model: Path | None, head: str, wanted: PostprocessParams, chosen: Mapping[str, Any]) -> Detector:
    from detectors.factory import open_detector
    from detectors.port import Options

    if model is None:
        raise click.UsageError("Missing option '--model'.")
    names = ("labels", "precision", "max_batch", "builder_level", "cache", "device", "semantics", "provider")
    shared = {name: chosen[name] for name in (*names, "provider_device")}
    options = Options(model, head=head, wanted=wanted, **shared)
    return open_detector(chosen["backend"], options)


# Each imports all that it needs, and reads the truth, before it opens a model, which may take minutes.


def _evaluate_tracks(options: MotOptions, open_model: OpenModel | None, json_file: Path | None) -> None:
    from daemon.commands.mot import evaluate as run
    from daemon.commands.report.tables import tracking_scores, write_json
    from daemon.commands.tracking_score import open_metrics

    open_metrics()
    detector = open_model() if open_model else None
    with progress("evaluate", "frames") as shown:
        scores = run(options, detector, shown.tell)
    write_json(json_file, scores)
    tracking_scores(scores)


def _evaluate_classes(pictures: Path, open_model: OpenModel, json_file: Path | None) -> None:
    from calibration.classification import evaluate as run
    from calibration.classification import labelled
    from daemon.commands.report.tables import classification, write_json

    pairs = labelled(pictures)
    detector = open_model()
    with progress("evaluate", "pictures") as shown:
        accuracy = run(detector, pairs, shown.tell)
    write_json(json_file, accuracy)
    classification(accuracy, detector.info)


def _evaluate_views(
    open_model: OpenModel, labelled: tuple[Path, Path], options: ViewOptions, json_file: Path | None
) -> None:
    from calibration.coco import Truth
    from calibration.views import compare
    from daemon.commands.report.tables import view_comparison, write_json

    truth = Truth(*labelled, options.roi)
    detector = open_model()
    with progress("evaluate", "pictures") as shown:
        views = compare(detector, truth, options, shown.tell)
    write_json(json_file, views)
    view_comparison(views, detector.info)


def _evaluate_boxes(open_model: OpenModel, labelled: tuple[Path, Path], json_file: Path | None) -> None:
    from calibration.coco import Truth, measure
    from daemon.commands.report.tables import evaluation, write_json

    truth = Truth(*labelled)
    detector = open_model()
    with progress("evaluate", "pictures") as shown:
        result, _ = measure(detector, truth, tell=shown.tell)
    write_json(json_file, result)
    evaluation(result, detector.info)


def _tilings(tiles: tuple[str, ...], overlap: float, *, whole: bool) -> list[Tiling]:
    from daemon.config.source_checks import check_views
    from detectors.views import Tiling

    rows = []
    for text in tiles:
        check_views(None, text, "--")
        if grid := tiles_of(text):
            rows.append(Tiling(grid.columns, grid.rows, overlap, whole))
    return rows


@click.command(
    epilog=examples(
        "lookout calibrate yolov8n.onnx --labels coco --from recordings/ --out calibrated/",
        "lookout calibrate resnet50.onnx --from photos/ --classify val/ --precision int8",
    )
)
@click.argument("model", type=InputPath())
@click.option(
    "--from",
    "origins",
    required=True,
    multiple=True,
    type=InputPath(),
    help="A clip, a folder of clips or photos, or a configuration whose sources are read; may be given more than once.",
)
@click.option(
    "--precision",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "int8", "fp16", "fp8"]),
    help="auto: the fastest that passes.",
)
@click.option("--out", type=OutputFolder(), default=Path("calibrated"), show_default=True, help="Folder.")
@click.option("--images", type=InputPath(), help="Labelled photos, to judge by; else by the float model.")
@click.option("--annotations", type=InputPath(), help="What is on them: a COCO file.")
@click.option(
    "--classify",
    "classes",
    type=InputPath(),
    help="Labelled pictures of a classifier: a folder with a folder for each class, or a CSV file,class.",
)
@click.option("--classifier", is_flag=True, help="MODEL is a classifier, and there are no labels.")
@click.option("--max-ap-drop", default=0.01, show_default=True, type=Number(0, 1), help="With labels.")
@click.option(
    "--max-top1-drop", default=0.01, show_default=True, type=Number(0, 1), help="Of a classifier with labels."
)
@click.option(
    "--min-agreement",
    default=0.95,
    show_default=True,
    type=Number(0, 1),
    help="Without: the share of boxes, or of top classes, that the float model has too.",
)
@click.option(
    "--judge-share",
    default=0.5,
    show_default=True,
    type=Number(0, 1, min_open=True),
    help="Of the labelled photos, those that judge; the others choose the method and steer which layers stay in float.",
)
@click.option(
    "--method",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "minmax", "percentile", "entropy"]),
    help="Of finding INT8's ranges.",
)
@click.option(
    "--placement",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "layers", "shared"]),
    help="Of INT8. shared: one scale for what is joined. auto: on a GPU the fastest that a search finds, else layers.",
)
@click.option(
    "--max-float",
    default=0.5,
    show_default=True,
    type=Number(0, 1),
    help="Share of the layers that may stay in float.",
)
@click.option("--frames", "count", default=128, show_default=True, type=click.IntRange(1), help="To calibrate with.")
@click.option("--held-out", default=48, show_default=True, type=click.IntRange(1), help="To compare on.")
@click.option("--min-frames", default=32, show_default=True, type=click.IntRange(1), help="Fewer are refused.")
@click.option("--seconds", default=60.0, show_default=True, type=Number(min=1), help="Of each live source.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@LABELS
@HEAD
@takes_semantics
@INPUT_SIZE
@click.option("--confidence", default=0.25, show_default=True, type=Number(0, 1), help="That you run with.")
@click.option("--backend", default="auto", show_default=True, type=click.Choice(["auto", "trt", "trt-rtx", "cpu"]))
@click.option("--max-batch", default=8, show_default=True, type=click.IntRange(1, 256))
@takes_builder_level()
@THREADS
@CACHE
def calibrate(
    model: Path,
    origins: tuple[Path, ...],
    images: Path | None,
    annotations: Path | None,
    count: int,
    held_out: int,
    min_frames: int,
    seconds: float,
    seed: int,
    backend: str,
    **chosen: Any,
) -> int:
    """Make MODEL in a lower precision, measure what that costs, and refuse it where it costs too much.

    \b
    Exit code 0: what was asked for may be deployed.
              1: it was refused: the loss is surely more than was allowed.
              2: it could not be tried.
              3: it is undecided: too few photos or frames to tell; the text says about how many more would do.
    auto ends with 0 unless no lower precision passes and one of them is undecided, which is 3.
    """
    try:
        from daemon.commands.calibrate import FrameSelection
        from daemon.commands.calibrate import calibrate as run_calibrate
    except ImportError as error:
        raise LookoutError(f"{error.name} is not installed: pip install 'lookoutd[calibrate]'") from error
    from daemon.config.root import LogConfig
    from daemon.log import logging
    from detectors.factory import Backend

    if (images is None) != (annotations is None):
        raise click.UsageError("--images and --annotations go together")
    if images and (chosen["classes"] or chosen["classifier"]):
        raise click.UsageError("--images and --annotations are for detectors; --classify is for classifiers")
    wanted = _calibration_of(model, (images, annotations) if images and annotations else None, seed, chosen)
    selection = FrameSelection(origins, count, held_out, min_frames, seconds, seed)
    with logging(LogConfig(level="warning", format="console")):
        return run_calibrate(wanted, selection, cast("Backend", backend))


def _calibration_of(
    model: Path, labelled: tuple[Path, Path] | None, seed: int, chosen: Mapping[str, Any]
) -> CalibrationConfig:
    from calibration.calibrate import CalibrationConfig
    from detectors.port import Options, PostprocessParams

    classifies = bool(chosen["classes"]) or chosen["classifier"]
    names = ("semantics", "labels", "input_size", "max_batch", "threads", "builder_level", "cache")
    options = Options(
        model,
        head="classify" if classifies else chosen["head"],
        wanted=PostprocessParams(0.0 if classifies else chosen["confidence"]),
        **{name: chosen[name] for name in names},
    )
    names = ("classes", "method", "max_ap_drop", "max_top1_drop", "placement", "min_agreement", "max_float")
    return CalibrationConfig(
        options,
        chosen["precision"],
        chosen["out"],
        labelled=labelled,
        test_share=chosen["judge_share"],
        seed=seed,
        **{name: chosen[name] for name in names},
    )
