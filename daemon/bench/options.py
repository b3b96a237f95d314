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


def _clip(named: str) -> Path | Url:
    """A recording, or the URL of a live source."""
    url = Url(named)
    return Path(named.removeprefix("file://")) if url.scheme in ("", "file") else url


SECONDS = click.FloatRange(min=0.1)
LANES = click.IntRange(1, 16)  # as the configuration has it, and the next
BATCHES = click.IntRange(1, 256)
PRECISION = click.option("--precision", default="auto", show_default=True, type=click.Choice(get_args(Precision)))
LEVEL = click.option("--builder-level", default=3, show_default=True, type=click.IntRange(0, 5))
CACHE = click.option("--cache", type=click.Path(path_type=Path), help="Folder of built engines.")
LABELS = click.option("--labels", help="Labels file, or coco, for a model without.")
MODEL = click.option("--model", type=click.Path(path_type=Path), help="ONNX file.  [default: the demo model]")
DEVICE = click.option("--device", default=0, show_default=True, type=click.IntRange(0), help="Number of the GPU.")
THREADS = click.option("--threads", default=0, show_default=True, type=click.IntRange(0), help="Of the CPU, 0 for all.")
ENCODING = click.option("--encoding", default="json", show_default=True, type=click.Choice(["json", "msgpack"]))
PACED = click.option(
    "--paced/--lossless",
    default=False,
    help="At the clips' own pace and live, or every frame as fast as possible.  [default: lossless]",
)
_LOAD = [
    click.argument("clips", nargs=-1, type=_clip),
    click.option("--sources", type=click.IntRange(1),
                 help="Taking the clips in turn.  [default: 28, or one a clip with --until-end]"),
    click.option("--seconds", default=20.0, show_default=True, type=SECONDS, help="In steady state."),
    click.option("--warm-up", default=12.0, show_default=True, type=click.FloatRange(min=0),
                 help="Seconds at most, until throughput and p99 are steady."),
    click.option("--phase", default=2.0, show_default=True, type=click.FloatRange(min=0),
                 help="Each source begins at a random moment of so many first seconds of its clip."),
    click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Of those moments."),
    MODEL,
    LABELS,
    click.option("--backend", default="auto", show_default=True, type=click.Choice(["auto", "trt", "cpu"])),
    PRECISION,
    LEVEL,
    CACHE,
    THREADS,
    click.option("--lanes", default=2, show_default=True, type=LANES),
    click.option("--max-batch", default=32, show_default=True, type=BATCHES, help="That the engine is made for."),
    click.option("--batch", type=BATCHES, help="That a lane takes at most.  [default: --max-batch]"),
    click.option("--decode", default="auto", show_default=True, type=click.Choice(["auto", "nvdec", "cpu"])),
    click.option("--processes", type=click.IntRange(0, 16), help="That capture.  [default: as many as suits]"),
    ENCODING,
    click.option("--admission", default="off", show_default=True, type=click.Choice(["off", "degrade", "refuse"])),
    click.option("--mps", default="auto", show_default=True, type=click.Choice(["auto", "off"])),
    DEVICE,
    click.option("--memory-limit", type=click.IntRange(1), help="MiB of the GPU's memory.  [default: what is free]"),
]  # fmt: skip


def takes_load(command: Callable[..., int]) -> Callable[..., int]:
    for option in reversed(_LOAD):
        command = option(command)
    return command


def load_of(wishes: Mapping[str, Any]) -> Load:
    """Of the options of `takes_load`; a drawn street where no clip is named.

    Raises:
        LookoutError: what is named has no picture or does not answer, or none can be drawn.
    """
    from daemon.bench.load import Load, check_playable
    from daemon.bench.synthetic_clip import synthetic_clip

    clips = wishes["clips"] or (synthetic_clip(),)
    sources = wishes["sources"] or (len(clips) if wishes.get("until_end") else 28)
    load = Load(**{**wishes, "clips": clips, "sources": sources})
    check_playable(load)
    return load
