"""Options that commands of `lookout bench` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from daemon.redact import Url
from detectors.port import Precision

if TYPE_CHECKING:
    from daemon.bench.load import Load

MODEL = click.option("--model", type=click.Path(path_type=Path), help="ONNX file.  [default: the demo model]")
LABELS = click.option("--labels", help="Labels file, or coco, for a model without.")
LANES = click.IntRange(1, 16)  # as the configuration has it, and the next
BATCHES = click.IntRange(1, 256)
BATCH = click.option("--max-batch", default=8, show_default=True, type=BATCHES)
THREADS = click.option(
    "--threads",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="CPU threads of one inference, 0 for all cores.",
)
PACED = click.option(
    "--paced/--lossless",
    default=False,
    help="At the clip's own pace and live, or every frame as fast as possible.  [default: lossless]",
)


def _clip(named: str) -> Path | Url:
    """A recording, or the URL of what comes live."""
    url = Url(named)
    return Path(named.removeprefix("file://")) if url.scheme in ("", "file") else url


_LOAD = [
    click.argument("clip", required=False, type=_clip),
    click.option(
        "--sources", default=28, show_default=True, type=click.IntRange(1), help="Of the one clip, looped, or URL."
    ),
    click.option("--seconds", default=20.0, show_default=True, type=click.FloatRange(min=0.1), help="In steady state."),
    click.option(
        "--warm-up",
        default=12.0,
        show_default=True,
        type=click.FloatRange(min=0),
        help="Seconds at most, until the rate is steady.",
    ),
    MODEL,
    LABELS,
    click.option("--backend", default="auto", show_default=True, type=click.Choice(["auto", "trt", "cpu"])),
    click.option("--precision", default="auto", show_default=True, type=click.Choice(get_args(Precision))),
    click.option("--builder-level", default=3, show_default=True, type=click.IntRange(0, 5)),
    click.option("--cache", type=click.Path(path_type=Path), help="Folder of built engines."),
    click.option("--lanes", default=2, show_default=True, type=LANES),
    click.option("--max-batch", default=32, show_default=True, type=BATCHES, help="That the engine is made for."),
    click.option("--batch", type=click.IntRange(1), help="That a lane takes at most.  [default: --max-batch]"),
    click.option("--decode", default="auto", show_default=True, type=click.Choice(["auto", "nvdec", "cpu"])),
    click.option("--processes", type=click.IntRange(0, 16), help="That capture.  [default: as many as suits]"),
    click.option("--encoding", default="json", show_default=True, type=click.Choice(["json", "msgpack"])),
    click.option("--admission", default="off", show_default=True, type=click.Choice(["off", "degrade", "refuse"])),
    click.option("--mps", default="auto", show_default=True, type=click.Choice(["auto", "off"])),
    click.option("--device", default=0, show_default=True, type=click.IntRange(0), help="Number of the GPU."),
    click.option("--memory-limit", type=click.IntRange(1), help="MiB of the GPU's memory.  [default: what is free]"),
]


def takes_load(command: Callable[..., int]) -> Callable[..., int]:
    for option in reversed(_LOAD):
        command = option(command)
    return command


def load_of(wishes: Mapping[str, Any]) -> Load:
    """Of the options of `takes_load`; a drawn street where no recording is named.

    Raises:
        LookoutError: what is named has no picture or does not answer, or none can be drawn.
    """
    from daemon.bench.drawn import street
    from daemon.bench.load import Load, check_playable

    load = Load(**{**wishes, "clip": wishes["clip"] or street()})
    if wishes["clip"]:
        check_playable(load)
    return load
