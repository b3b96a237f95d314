"""The group `model`."""

from __future__ import annotations

from pathlib import Path

import click

from daemon.commands.groups.options import HEAD, INPUT_SIZE, LABELS, complete_models, examples, renamed, takes_semantics
from daemon.commands.paths import InputName, InputPath, OutputFolder
from detectors.semantics import Semantics


@click.group()
def model() -> None:
    """Models to detect with: a catalogue, downloads, and what a file is."""


@model.command("list", epilog=examples("lookout model list"))
def list_models() -> int:
    """Show the models that can be fetched by name, with their licences."""
    from rich.console import Console

    from daemon.commands.model import show_catalogue

    show_catalogue(Console())
    return 0


@model.command(
    "get",
    epilog=examples("lookout model get yolox_tiny", "lookout model get yolox_tiny --from /media/usb/yolox_tiny.onnx"),
)
@click.argument("name", shell_complete=complete_models)
@click.option("--out", type=OutputFolder(), help="Folder.  [default: ~/.local/share/lookout/models]")
@renamed("--to", now="--out")
@click.option("--from", "mirror", type=InputName(), metavar="URL|FILE", help="Another place that has the same file.")
@click.option("--accept-licence", is_flag=True, help="Of a model that is not permissively licensed.")
def get_model(name: str, out: Path | None, mirror: str | None, accept_licence: bool) -> int:
    """Fetch the model NAME from its makers, and check it; what breaks off is resumed the next time."""
    from rich.console import Console

    from daemon.commands.model import get

    get(name, Console(), folder=out, mirror=mirror, accept=accept_licence)
    return 0


@model.command("info", epilog=examples("lookout model info yolov8n.onnx --labels coco"))
@click.argument("file", type=InputPath())
@HEAD
@LABELS
@INPUT_SIZE
@takes_semantics
def show_model(
    file: Path, head: str, labels: str | None, input_size: tuple[int, int] | None, semantics: Semantics
) -> int:
    """Show what FILE, an ONNX model, is taken for: layout, input, labels, precision, and where each fact is from."""
    from rich.console import Console

    from daemon.commands.model import info
    from detectors.port import Options

    options = Options(file, head, labels, input_size, max_batch=1, semantics=semantics)
    info(options, Console())
    return 0


@model.command("export", epilog=examples("lookout model export yolov8n.pt --input-size 640 640"))
@click.argument("file", type=InputPath())
@click.option(
    "--input-size",
    nargs=2,
    default=(640, 640),
    show_default=True,
    type=click.IntRange(32, 4096),
    help="Width and height.",
)
@renamed("--size", now="--input-size WIDTH HEIGHT")
def export_model(file: Path, input_size: tuple[int, int]) -> int:
    """Make an ONNX file of FILE, Ultralytics' .pt, with Ultralytics' own exporter: any batch size."""
    from rich.console import Console

    from daemon.commands.model import export

    export(file, input_size, Console())
    return 0
