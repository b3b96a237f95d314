"""Options shared by commands of `lookout bench`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from daemon.commands.groups.options import (
    CACHE,
    DEVICE,
    LABELS,
    PRECISION,
    PROVIDER,
    PROVIDER_DEVICE,
    THREADS,
    takes_builder_level,
)
from daemon.commands.numbers import Number
from daemon.commands.paths import InputName, InputPath, OutputFolder
from daemon.errors import LookoutError
from daemon.redact import Url
from detectors.port import Transport

if TYPE_CHECKING:
    from daemon.bench.load import Load


class _Clip(InputName):
    """A recording, or the URL of a live source."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | Url:
        url = Url(str(super().convert(value, param, ctx)))
        return Path(url.path) if url.scheme in ("", "file") else url


class _Model(InputName):
    """An ONNX file, a model of the catalogue, or the address of one on a server, and a name before it, or none."""

    name = "[NAME=]FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str | None, Path]:
        from daemon.config.models import is_name

        name, sign, path = str(value).partition("=")
        is_named = bool(sign) and is_name(name) and not Path(value).exists()
        found = super().convert(path if is_named else value, param, ctx)
        return (name if is_named else None), _file_of(str(found))


def _file_of(given: str) -> Path:
    """
    Raises:
        LookoutError: there is no such file, and none of this name has been fetched.
    """
    if "://" in given or Path(given).exists():
        return Path(given)
    from daemon.commands.model import choose

    chosen = choose(given)
    if chosen.entry is not None:
        raise LookoutError(f"{given} is not here: `lookout model get {given}` fetches it")
    return chosen.path


SECONDS = Number(min=0.1)
LANES = click.IntRange(1, 16)  # as in the configuration, like the next
BATCHES = click.IntRange(1, 256)
MODEL = click.option("--model", type=InputPath(),
                     help="ONNX file; for triton http://HOST:PORT/NAME.  [default: the demo model]")  # fmt: skip
MODELS = click.option("--model", multiple=True, type=_Model(), metavar="[NAME=]FILE",
                      help="ONNX file, or a name of `lookout model list`; for triton http://HOST:PORT/NAME. Of "
                      "several, each with --model, all look at each frame; they are named NAME, or like their files.  "
                      "[default: the demo model]")  # fmt: skip
ENCODING = click.option("--encoding", default="json", show_default=True, type=click.Choice(["json", "msgpack"]))
PACED = click.option(
    "--paced/--lossless",
    default=False,
    help="Live at the clips' own pace, or every frame as fast as possible.  [default: lossless]",
)
_LOAD = [
    click.argument("clips", nargs=-1, type=_Clip()),
    click.option("--sources", type=click.IntRange(1, 10_000),
                 help="Clips are assigned in turn.  [default: 28, or one per clip with --until-end]"),
    click.option("--seconds", default=20.0, show_default=True, type=SECONDS, help="In steady state."),
    click.option("--warm-up", default=12.0, show_default=True, type=Number(min=0),
                 help="Maximum seconds until throughput and p99 are steady."),
    click.option("--phase", default=2.0, show_default=True, type=Number(min=0),
                 help="Each source starts at a random offset in its clip, up to this many seconds."),
    click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Of those offsets."),
    MODELS,
    LABELS,
    click.option("--backend", default="auto", show_default=True,
                 type=click.Choice(["auto", "trt", "trt-rtx", "cpu", "triton"])),
    PROVIDER,
    PROVIDER_DEVICE,
    click.option("--transport", default="auto", show_default=True, type=click.Choice(get_args(Transport)),
                 help="Of pictures to a Triton server."),
    PRECISION,
    takes_builder_level(),
    CACHE,
    THREADS,
    click.option("--lanes", default=2, show_default=True, type=LANES),
    click.option("--max-batch", default=32, show_default=True, type=BATCHES, help="Largest batch of the engine."),
    click.option("--batch", type=BATCHES, help="Largest batch of a lane.  [default: --max-batch]"),
    click.option("--decode", default="auto", show_default=True, type=click.Choice(["auto", "nvdec", "cpu"])),
    click.option("--processes", type=click.IntRange(0, 16), help="Capture processes.  [default: chosen automatically]"),
    ENCODING,
    click.option("--admission", default="off", show_default=True, type=click.Choice(["off", "degrade", "refuse"])),
    click.option("--analytics", is_flag=True, help="Track objects, with four rules a source."),
    click.option("--snapshots", type=OutputFolder(), help="Folder for pictures of --analytics' events."),
    click.option("--classifier", type=InputPath(), help="ONNX file of a second stage; tracks objects."),
    click.option("--classify", help="Labels that --classifier looks at, such as car,bus."),
    click.option("--mps", default="auto", show_default=True, type=click.Choice(["auto", "off"])),
    DEVICE,
    click.option("--memory-limit", type=click.IntRange(1), help="MiB of GPU memory.  [default: all free memory]"),
]  # fmt: skip


def takes_load(command: Callable[..., int]) -> Callable[..., int]:
    for option in reversed(_LOAD):
        command = option(command)
    return command


def load_of(values: Mapping[str, Any]) -> Load:
    """The load from the options of `takes_load`; a synthetic clip if none is named.

    Raises:
        LookoutError: a clip has no picture, a URL does not answer, or the synthetic clip cannot be made.
    """
    from daemon.bench.load import Load, check_playable
    from daemon.sources.synthetic_clip import synthetic_clip

    clips = values["clips"] or (synthetic_clip(),)
    if (values["classifier"] is None) != (values["classify"] is None):
        raise click.UsageError("--classifier and --classify go together: --classifier color.onnx --classify car")
    if values["snapshots"] and not values["analytics"]:
        raise click.UsageError("--snapshots needs --analytics, which finds the events")
    sources = values["sources"] or (len(clips) if values.get("until_end") else 28)
    load = Load(**{**values, **_models_of(values["model"]), "clips": clips, "sources": sources})
    check_playable(load)
    return load


def _models_of(named: Sequence[tuple[str | None, Path]]) -> dict[str, Any]:
    """The model of a load, or its models by name."""
    from daemon.config.section import MAX_MODELS

    if len(named) < 2:
        return {"model": named[0][1] if named else None}
    models: dict[str, Path] = {}
    for name, path in named:
        own = name or path.stem
        if own in models:
            raise click.UsageError(f"two models are named {own}: give one another name, --model NAME={path}")
        models[own] = path
    if len(models) > MAX_MODELS:
        raise click.UsageError(f"--model: {len(models)} models; at most {MAX_MODELS} can look at a source")
    return {"model": None, "models": models}
