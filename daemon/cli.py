"""The command line: thin commands, and the one door where errors become a line and an exit code."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn, cast, get_args

import click

from daemon import __version__
from daemon.bench.commands import bench
from daemon.commands.outputs import JSON_FILE, OutputFolder
from daemon.errors import LookoutError
from daemon.system.signals import leave
from detectors.port import DetectorError, Precision

USER_ERROR = 2
_CONFIG = click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    default="config.yaml",
    show_default=True,
    help="Configuration file.",
)
_ENDPOINT = "tcp://127.0.0.1:5556"
_FIRST_MODEL = "yolox_nano"  # small, fast on any machine, and of a permissive licence


def main() -> NoReturn:
    """The `lookout` command."""
    leave(invoke(sys.argv[1:]))


def invoke(args: Sequence[str]) -> int:
    """Run a command; what a user can mend is one line on stderr and exit code 2."""
    try:
        code = cli.main(list(args), prog_name="lookout", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return USER_ERROR
    except click.ClickException as error:
        return _complain(error.format_message())
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:  # `lookout watch | head`
        sys.stderr.close()
        return 0
    except (LookoutError, DetectorError, OSError, RuntimeError, MemoryError, ImportError) as error:
        words = _message_of(error)
        if words is None:
            raise
        return _complain(words)
    return code if isinstance(code, int) else 0


def _message_of(error: Exception) -> str | None:
    """For a person, of what a person can mend; None of anything else."""
    number = getattr(error, "errno", None)
    if isinstance(error, LookoutError | DetectorError):
        return str(error)
    if number in (errno.EMFILE, errno.ENFILE):
        return "the system gives no more open files: raise the limit (`ulimit -n`, LimitNOFILE)"
    if isinstance(error, MemoryError) or number == errno.ENOMEM or "failed to map segment" in str(error):
        return "the system gives no more memory: stop something else, or raise the limit (`ulimit -v`, MemoryMax)"
    if "can't start new thread" in str(error):
        return "the system gives no more threads: raise their limit, or memory's (`ulimit -u`, `ulimit -v`, TasksMax)"
    return None


def _complain(text: str) -> int:
    click.echo(f"lookout: {' '.join(text.split())}", err=True)
    return USER_ERROR


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="lookout")
def cli() -> None:
    """Lookout: video in, YOLO detections out over ZeroMQ."""


@cli.command()
@click.argument("sources", nargs=-1, metavar="[SOURCE]...")
@_CONFIG
@click.option("--model", help="ONNX file, or a name of `lookout model list`.  [default: yolox_nano]")
@click.option("--endpoint", help=f"Where subscribers connect.  [default: {_ENDPOINT}]")
@click.option("--save", type=click.Path(path_type=Path), help="Write the configuration that SOURCEs make, commented.")
@click.pass_context
def run(
    context: click.Context,
    sources: tuple[str, ...],
    config: Path,
    model: str | None,
    endpoint: str | None,
    save: Path | None,
) -> int:
    """Start every source, detect, publish and monitor, until SIGTERM or SIGINT.

    Each SOURCE is a URL (rtsp://...), a file, a folder, a pattern, or the number of a USB camera. Without one, the
    configuration file says what there is.
    """
    from daemon.commands import run as running

    if not sources:
        given = {"--model": model, "--endpoint": endpoint, "--save": save}
        if alone := [name for name, value in given.items() if value is not None]:
            raise LookoutError(f"{alone[0]} is for sources on the command line: lookout run rtsp://... {alone[0]} ...")
        return running.run_file(config)
    if context.get_parameter_source("config") != click.core.ParameterSource.DEFAULT:
        raise LookoutError("sources come from the command line or from -c, not from both")
    return running.run_sources(sources, model or _FIRST_MODEL, endpoint, save)


@cli.command()
@_CONFIG
@click.option("--running", is_flag=True, help="A daemon has this configuration's ports: do not try them.")
def check(config: Path, running: bool) -> int:
    """Validate the configuration, open each source once, load the model, and print what was found."""
    from daemon.commands.check import check as run_check
    from daemon.config import LogConfig
    from daemon.control.source_store import load_effective, warn_if_overridden
    from daemon.log import logging

    with logging(LogConfig(format="console")):
        loaded = load_effective(config)
        warn_if_overridden(loaded)
        return run_check(loaded, ports=not running)


@cli.command()
@_CONFIG
def health(config: Path) -> int:
    """Ask the daemon that runs with this configuration for a sign of life; 0 if there is one, 1 if not."""
    from daemon.commands.health import probe
    from daemon.config import load

    lives, words = probe(load(config))
    click.echo(words, err=not lives)
    return 0 if lives else 1


@cli.command()
@click.argument("endpoint", default=_ENDPOINT)
@click.option("--source", "sources", multiple=True, help="Only this source; may be given more than once.")
@click.option("--json", "as_json", is_flag=True, help="One message a line, as JSON.")
@click.option("--once", is_flag=True, help="End with the first detections: a health check.")
@click.option("--timeout", default=5.0, show_default=True, type=click.FloatRange(min=0), help="Seconds --once waits.")
@click.option("--server-key", help="The daemon's public CURVE key, or the file that holds it.")
@click.option("--secret-key", type=click.Path(path_type=Path), help="Your own .key_secret, where only some are let in.")
def watch(
    endpoint: str,
    sources: tuple[str, ...],
    as_json: bool,
    once: bool,
    timeout: float,
    server_key: str | None,
    secret_key: Path | None,
) -> int:
    """Show what a running Lookout publishes on ENDPOINT."""
    from daemon.client import Subscriber
    from daemon.commands import watch as watching

    if not (once or as_json or sys.stdout.isatty()):
        raise LookoutError("the table is for terminals, and this is none: use --json")
    kinds = ("detections",) if once else ("detections", "status", "metrics")
    keys = {"server_key": server_key, "secret_key": secret_key}
    with Subscriber(endpoint, sources=sources, kinds=kinds, **keys) as subscriber:  # type: ignore[arg-type]
        if once:
            return watching.once(subscriber, endpoint, timeout, as_json)
        return watching.lines(subscriber) if as_json else watching.table(subscriber, endpoint)


@cli.command()
@click.option("--seconds", default=20.0, show_default=True, type=click.FloatRange(min=1), help="How long.")
@click.option("--backend", default="auto", show_default=True, type=click.Choice(["auto", "trt", "cpu"]))
def demo(seconds: float, backend: str) -> int:
    """Show Lookout at work on a drawn street, with the model that comes with it, and compare with the truth."""
    from daemon.commands.demo import demo as run_demo
    from detectors.factory import Backend

    return run_demo(seconds, cast("Backend", backend))


@cli.command()
@click.option("--model", required=True, type=click.Path(path_type=Path), help="ONNX file.")
@click.option("--images", required=True, type=click.Path(path_type=Path), help="Folder of the photos.")
@click.option("--annotations", required=True, type=click.Path(path_type=Path), help="COCO ground truth, JSON.")
@click.option("--labels", help="Labels file, or coco, for a model without.")
@click.option("--backend", default="auto", show_default=True, type=click.Choice(["auto", "trt", "cpu"]))
@click.option("--confidence", default=0.001, show_default=True, type=click.FloatRange(0, 1))
@click.option("--iou", default=0.65, show_default=True, type=click.FloatRange(0, 1), help="Of class-wise NMS.")
@click.option("--max-detections", default=300, show_default=True, type=click.IntRange(1))
@click.option("--precision", default="auto", show_default=True, type=click.Choice(get_args(Precision)))
@click.option("--max-batch", default=1, show_default=True, type=click.IntRange(1, 256), help="Of the engine to judge.")
@click.option("--level", default=3, show_default=True, type=click.IntRange(0, 5), help="Of the engine builder.")
@click.option("--cache", type=click.Path(path_type=Path), help="Cache folder.  [default: ~/.cache/lookout]")
@click.option("--device", default=0, show_default=True, type=click.IntRange(0), help="Number of the GPU.")
@JSON_FILE
def evaluate(
    model: Path,
    images: Path,
    annotations: Path,
    labels: str | None,
    backend: str,
    confidence: float,
    iou: float,
    max_detections: int,
    precision: str,
    max_batch: int,
    level: int,
    cache: Path | None,
    device: int,
    json_file: Path | None,
) -> int:
    """COCO AP of a model over labelled photos, by the detector that `run` uses."""
    from calibration.coco import evaluate as run_evaluate
    from daemon.commands.report.tables import evaluation, write_json
    from daemon.config import LogConfig
    from daemon.log import logging
    from detectors.factory import Backend, open_detector
    from detectors.port import Options, PostprocessParams

    options = Options(
        model,
        labels=labels,
        wanted=PostprocessParams(confidence, iou, max_detections, multi_label=True),
        precision=cast("Precision", precision),
        max_batch=max_batch,
        builder_level=level,
        cache=cache,
        device=device,
    )
    with logging(LogConfig(format="console")), closing(open_detector(cast("Backend", backend), options)) as detector:
        result = run_evaluate(detector, images, annotations)
    evaluation(result, detector.info)
    write_json(json_file, result)
    return 0


@cli.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "origins",
    required=True,
    multiple=True,
    type=click.Path(path_type=Path),
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
@click.option(
    "--images", type=click.Path(path_type=Path), help="Labelled photos, to judge by; else by the float model."
)
@click.option("--annotations", type=click.Path(path_type=Path), help="What is on them: a COCO file.")
@click.option("--max-ap-drop", default=0.01, show_default=True, type=click.FloatRange(0, 1), help="With labels.")
@click.option(
    "--min-agreement",
    default=0.95,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="Without: the share of boxes that the float model has too.",
)
@click.option(
    "--judge-share",
    default=0.5,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True),
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
    type=click.FloatRange(0, 1),
    help="Share of the layers that may stay in float.",
)
@click.option("--frames", "count", default=128, show_default=True, type=click.IntRange(1), help="To calibrate with.")
@click.option("--held-out", default=48, show_default=True, type=click.IntRange(1), help="To compare on.")
@click.option("--min-frames", "least", default=32, show_default=True, type=click.IntRange(1), help="Fewer are refused.")
@click.option("--seconds", default=60.0, show_default=True, type=click.FloatRange(min=1), help="Of each live source.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("--labels", help="Labels file, or coco, for a model without.")
@click.option("--input-size", nargs=2, type=click.IntRange(1), help="For a model that leaves it open.")
@click.option("--confidence", default=0.25, show_default=True, type=click.FloatRange(0, 1), help="That you run with.")
@click.option("--backend", default="auto", show_default=True, type=click.Choice(["auto", "trt", "cpu"]))
@click.option("--max-batch", default=8, show_default=True, type=click.IntRange(1, 256))
@click.option("--level", default=3, show_default=True, type=click.IntRange(0, 5), help="Of the engine builder.")
@click.option("--threads", default=0, show_default=True, type=click.IntRange(0), help="Of the CPU, 0 for all.")
@click.option("--cache", type=click.Path(path_type=Path), help="Cache folder.  [default: ~/.cache/lookout]")
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
    **wishes: Any,
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
        from calibration.calibrate import CalibrationConfig
        from daemon.commands.calibrate import FrameSelection
        from daemon.commands.calibrate import calibrate as run_calibrate
    except ImportError as error:
        raise LookoutError(f"{error.name} is not installed: pip install '.[calibrate]'") from error
    from daemon.config import LogConfig
    from daemon.log import logging
    from detectors.factory import Backend
    from detectors.port import Options, PostprocessParams

    if (images is None) != (annotations is None):
        raise click.UsageError("--images and --annotations go together")
    options = Options(
        model,
        labels=wishes["labels"],
        input_size=wishes["input_size"] or None,
        wanted=PostprocessParams(wishes["confidence"]),
        max_batch=wishes["max_batch"],
        threads=wishes["threads"],
        builder_level=wishes["level"],
        cache=wishes["cache"],
    )
    wanted = CalibrationConfig(
        options,
        wishes["precision"],
        wishes["out"],
        labelled=(images, annotations) if images and annotations else None,
        method=wishes["method"],
        max_ap_drop=wishes["max_ap_drop"],
        min_agreement=wishes["min_agreement"],
        max_float=wishes["max_float"],
        test_share=wishes["judge_share"],
        seed=seed,
    )
    selection = FrameSelection(origins, count, held_out, min_frames, seconds, seed)
    with logging(LogConfig(level="warning", format="console")):
        return run_calibrate(wanted, selection, cast("Backend", backend))


cli.add_command(bench)


@cli.group()
def engine() -> None:
    """Engines for NVIDIA GPUs, built from models: build ahead, see, throw away."""


_CACHE = click.option("--cache", type=click.Path(path_type=Path), help="Cache folder.  [default: ~/.cache/lookout]")


@engine.command()
@click.argument("model", required=False, type=click.Path(path_type=Path))
@click.option(
    "-c", "--config", type=click.Path(path_type=Path), help="What this configuration needs, instead of MODEL."
)
@click.option("--precision", default="auto", show_default=True, type=click.Choice(get_args(Precision)))
@click.option("--max-batch", default=8, show_default=True, type=click.IntRange(1, 256))
@click.option(
    "--level", default=3, show_default=True, type=click.IntRange(0, 5), help="How long to look for the fastest."
)
@click.option(
    "--input-size", nargs=2, type=click.IntRange(1), help="Width and height, for a model that leaves them open."
)
@_CACHE
def build(
    model: Path | None,
    config: Path | None,
    precision: str,
    max_batch: int,
    level: int,
    input_size: tuple[int, int] | None,
    cache: Path | None,
) -> int:
    """Build the engine of MODEL, or of a configuration, unless it is there; minutes, with a line now and then."""
    from daemon.commands import engines
    from daemon.config import LogConfig, load
    from daemon.control.plan import options_of
    from daemon.log import logging
    from detectors.port import Options

    if (model is None) == (config is None):
        raise click.UsageError("give either MODEL, an ONNX file, or -c CONFIG")
    if config is not None:
        options = options_of(load(config))
    else:
        options = Options(
            cast("Path", model),
            input_size=input_size or None,
            max_batch=max_batch,
            precision=cast("Precision", precision),
            builder_level=level,
            cache=cache,
        )
    with logging(LogConfig(format="console")):
        engines.build(options)
    return 0


@engine.command("list")
@_CACHE
def list_engines(cache: Path | None) -> int:
    """What has been built, the last used first."""
    from daemon.commands import engines

    engines.listing(cache)
    return 0


@engine.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--precision", default="auto", show_default=True, type=click.Choice(get_args(Precision)))
@click.option("--picture", type=click.Path(path_type=Path), help="A file; without it a drawn street.")
@click.option("--tolerance", default=0.05, show_default=True, type=click.FloatRange(0), help="Error over size.")
@click.option("--all", "everything", is_flag=True, help="All tensors, not only what layers with weights read.")
@click.option("--level", default=1, show_default=True, type=click.IntRange(0, 5), help="Of the engine builder.")
@click.option("--input-size", nargs=2, type=click.IntRange(1), help="For a model that leaves it open.")
@click.option("--labels", help="Labels file, or coco, for a model without.")
@_CACHE
def compare(
    model: Path,
    precision: str,
    picture: Path | None,
    tolerance: float,
    everything: bool,
    level: int,
    input_size: tuple[int, int] | None,
    labels: str | None,
    cache: Path | None,
) -> int:
    """Compare what an engine of MODEL computes with onnxruntime, tensor by tensor: where they part, NaN and infinities.

    Tensors that are looked at end what is fused, so it is another engine than the one that runs; it is built first.

    \b
    Exit code 0: no tensor differs by more than is tolerated.
              1: some do; the first of them is named.
    """
    try:
        from daemon.commands.engine_comparison import compare as run_compare
    except ImportError as error:
        raise LookoutError(f"{error.name} is not installed: pip install '.[calibrate]'") from error
    from daemon.config import LogConfig
    from daemon.log import logging
    from detectors.port import Options

    options = Options(
        model,
        labels=labels,
        input_size=input_size or None,
        precision=cast("Precision", precision),
        builder_level=level,
        cache=cache,
    )
    with logging(LogConfig(format="console")):
        return int(not run_compare(options, picture, tolerance, everything=everything))


@engine.command()
@click.argument("key")
@click.option("--layers", type=click.Path(path_type=Path), metavar="MODEL", help="Run it: layers of this ONNX file.")
@_CACHE
def show(key: str, layers: Path | None, cache: Path | None) -> int:
    """Everything known of the engine whose key begins with KEY; with --layers what was fused, and the time it takes."""
    from daemon.commands import engines

    engines.show(key, cache)
    if layers:
        engines.layers(key, layers, cache)
    return 0


@engine.command()
@click.option("--unused-days", default=30.0, show_default=True, type=click.FloatRange(min=0), help="0 for all.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@_CACHE
def prune(unused_days: float, dry_run: bool, cache: Path | None) -> int:
    """Remove engines not used for a while, damaged ones, and leftovers. A removed engine is built again when needed."""
    from daemon.clock import SystemClock
    from daemon.commands import engines

    engines.prune(cache, unused_days, SystemClock().utc_ns(), dry_run, click.echo)
    return 0


@cli.group()
def keys() -> None:
    """CURVE keys for the publisher."""


@keys.command()
@click.argument("folder", type=click.Path(path_type=Path), default=".")
@click.option("--name", default="lookout", show_default=True)
def new(folder: Path, name: str) -> int:
    """Write a key pair to FOLDER: NAME.key for subscribers, NAME.key_secret for the daemon alone."""
    from daemon.publish.curve import new_pair

    public, secret = new_pair(folder, name)
    click.echo(f"{secret}: for publisher.curve.secret_key_file; keep it to the daemon\n{public}: for subscribers")
    return 0


@cli.group()
def model() -> None:
    """Models to detect with: a catalogue, downloads, and what a file is."""


@model.command("list")
def list_models() -> int:
    """Show the models that can be fetched by name, with their licences."""
    from rich.console import Console

    from daemon.commands.model import show_catalogue

    show_catalogue(Console())
    return 0


@model.command("get")
@click.argument("name")
@click.option("--to", type=click.Path(path_type=Path), help="Folder.  [default: ~/.local/share/lookout/models]")
@click.option("--from", "mirror", metavar="URL", help="Another address that has the same file.")
@click.option("--accept-licence", is_flag=True, help="Of a model that is not permissively licensed.")
def get_model(name: str, to: Path | None, mirror: str | None, accept_licence: bool) -> int:
    """Fetch the model NAME from its makers, and check it; what breaks off is resumed the next time."""
    from rich.console import Console

    from daemon.commands.model import get

    get(name, Console(), folder=to, mirror=mirror, accept=accept_licence)
    return 0


@model.command("info")
@click.argument("file", type=click.Path(path_type=Path))
def show_model(file: Path) -> int:
    """Show what FILE, an ONNX model, is taken for: layout, input, labels, precision."""
    from rich.console import Console

    from daemon.commands.model import info

    info(file, Console())
    return 0


@model.command("export")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--size", default=640, show_default=True, type=click.IntRange(32, 4096), help="Input width and height.")
def export_model(file: Path, size: int) -> int:
    """Make an ONNX file of FILE, Ultralytics' .pt, with Ultralytics' own exporter: any batch size."""
    from rich.console import Console

    from daemon.commands.model import export

    export(file, size, Console())
    return 0


@cli.command()
@click.option("--seconds", default=3.0, show_default=True, type=click.FloatRange(0, 60), help="To wait for answers.")
@click.option("--at", "addresses", multiple=True, metavar="HOST[:PORT]", help="A camera that discovery does not reach.")
@click.option("--user", default="", help="Of the cameras in the network.")
@click.option("--password", default="", envvar="CAMERA_PASSWORD", help="Better from CAMERA_PASSWORD.")
@click.option("--usb", is_flag=True, help="Those of this machine only.")
@click.option("--yaml", "as_yaml", is_flag=True, help="As the sources of a configuration.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def cameras(
    seconds: float, addresses: tuple[str, ...], user: str, password: str, usb: bool, as_yaml: bool, as_json: bool
) -> int:
    """Show the cameras of this machine (V4L2) and of its network (ONVIF), with the address of each stream."""
    from rich.console import Console

    from daemon.commands import cameras as finding

    found = finding.usb_cameras()
    if not usb:
        found += finding.network_cameras(seconds, addresses, user, password)
    if as_json:
        click.echo(finding.as_json(found))
    elif as_yaml:
        click.echo(finding.as_yaml(found, with_user=bool(user)), nl=False)
    else:
        finding.show(found, Console())
    return 0 if found else 1


@cli.command()
@click.argument("sources", nargs=-1, metavar="[SOURCE]...")
@click.option("--model", help="ONNX file, or a name of `lookout model list`.")
@click.option("--endpoint", help=f"Where subscribers connect.  [default: {_ENDPOINT}]")
@click.option("--out", type=click.Path(path_type=Path), default="config.yaml", show_default=True, help="The file.")
def init(sources: tuple[str, ...], model: str | None, endpoint: str | None, out: Path) -> int:
    """Write a configuration for SOURCEs and try it; without SOURCEs, it asks."""
    from daemon.commands.init import init as run_init
    from daemon.config import LogConfig
    from daemon.log import logging

    with logging(LogConfig(format="console")):
        return run_init(sources, model, endpoint, out, _FIRST_MODEL)
