"""The group `engine`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import click

from daemon.commands.environment import ConfigFile
from daemon.commands.groups.options import (
    CACHE,
    INPUT_SIZE,
    LABELS,
    PRECISION,
    examples,
    takes_builder_level,
    takes_semantics,
)
from daemon.commands.numbers import Number
from daemon.commands.paths import InputName, InputPath, OutputFile
from daemon.errors import LookoutError

_Command = Callable[..., int]
_MAX_BATCH = click.option("--max-batch", default=8, show_default=True, type=click.IntRange(1, 256))
_PICTURE = OutputFile(makes_folder=True)
_HEAD = click.option("--head", default="auto", show_default=True, help="classify for a classifier that states no task.")


def _takes_recipe(builder_level: int) -> Callable[[_Command], _Command]:
    """A command with options that choose an engine; each is a field of `detectors.port.Options`.

    Args:
        builder_level: the default.
    """

    def wrap(command: _Command) -> _Command:
        options = (PRECISION, takes_builder_level(builder_level), INPUT_SIZE, _HEAD, LABELS, takes_semantics, CACHE)
        for option in reversed(options):
            command = option(command)
        return command

    return wrap


@click.group()
def engine() -> None:
    """Engines for NVIDIA GPUs, built from models: build ahead, see, throw away."""


@engine.command(
    epilog=examples(
        "lookout engine build -c config.yaml",
        "lookout engine build yolov8n.onnx --precision fp16 --max-batch 8",
    )
)
@click.argument("model", required=False, type=InputPath())
@click.option("-c", "--config", type=ConfigFile(), help="What this configuration needs, instead of MODEL.")
@click.option(
    "--for",
    "cards",
    metavar="CARD,...",
    help="Cards elsewhere, such as rtx30,rtx40,rtx50; without a GPU.",
)
@_MAX_BATCH
@_takes_recipe(builder_level=3)
def build(model: Path | None, config: Path | None, cards: str | None, **recipe: Any) -> int:
    """Build the engine of MODEL, or of a configuration, unless it is there; minutes, with a line now and then.

    With --for, a few seconds: the two files of the engine are then copied to the machines with such cards, into
    `engines` in their cache folder. There `run` takes them if the model and all that shapes the engine are the same.
    """
    from daemon.commands import engines
    from daemon.config.load import load
    from daemon.config.root import LogConfig
    from daemon.control.plan import options_of
    from daemon.log import logging
    from detectors.port import Options

    if (model is None) == (config is None):
        raise click.UsageError("give either MODEL, an ONNX file, or -c CONFIG")
    if config:
        whole = load(config)
        models = [whole.for_model(name) for name in whole.model_names]
        wanted = [(one.model.backend, options_of(one)) for one in models]
    else:
        wanted = [("auto", Options(cast("Path", model), **recipe))]
    for backend, _ in wanted if cards is not None else ():
        if backend not in ("auto", "trt-rtx"):
            raise LookoutError(f"--for builds engines for trt-rtx, and model.backend of {config} is {backend}")
    with logging(LogConfig(format="console")):
        for backend, given in wanted:
            options = replace(given, cache=recipe["cache"] or given.cache)
            if cards is None:
                engines.build(backend, options)
            else:
                engines.build_for([name.strip().lower() for name in cards.split(",")], options)
    return 0


@engine.command("list", epilog=examples("lookout engine list"))
@CACHE
def list_engines(cache: Path | None) -> int:
    """Built engines, most recently used first."""
    from daemon.commands import engines

    engines.listing(cache)
    return 0


@engine.command(epilog=examples("lookout engine compare yolov8n.onnx"))
@click.argument("model", type=InputPath())
@click.option("--picture", type=InputPath(), help="A file; without it a drawn street.")
@click.option("--tolerance", default=0.05, show_default=True, type=Number(0), help="Error over size.")
@click.option("--all", "everything", is_flag=True, help="All tensors, not only what layers with weights read.")
@_takes_recipe(builder_level=1)
def compare(model: Path, picture: Path | None, tolerance: float, everything: bool, **recipe: Any) -> int:
    """Compare what an engine of MODEL computes with onnxruntime, tensor by tensor: where they part, NaN and infinities.

    Tensors that are looked at end what is fused, so it is another engine than the one that runs; it is built first.

    \b
    Exit code 0: no tensor differs by more than is tolerated.
              1: some do; the first of them is named.
    """
    try:
        from daemon.commands.engine_comparison import compare as run_compare
    except ImportError as error:
        raise LookoutError(f"{error.name} is not installed: pip install 'lookoutd[calibrate]'") from error
    from daemon.config.root import LogConfig
    from daemon.log import logging
    from detectors.port import Options

    with logging(LogConfig(format="console")):
        return int(not run_compare(Options(model, **recipe), picture, tolerance, everything=everything))


@engine.command(epilog=examples("lookout engine profile yolov8n.onnx --max-batch 8 --html layers.html"))
@click.argument("target", type=InputName(), metavar="MODEL|KEY")
@click.option("--batch", type=click.IntRange(1), help="Pictures in a run.  [default: the engine's largest batch]")
@click.option("--runs", default=50, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--top", default=20, show_default=True, type=click.IntRange(1, 200), help="Layers in table and picture.")
@click.option("--json", "as_json", is_flag=True, help="All layers, instead of the table.")
@click.option("--svg", type=_PICTURE, help="Write the picture: bars of the slowest layers.")
@click.option(
    "--html", type=OutputFile(makes_folder=True), help="Write a page with picture and table, and .md beside it."
)
@_MAX_BATCH
@_takes_recipe(builder_level=3)
def profile(
    target: str,
    batch: int | None,
    runs: int,
    top: int,
    as_json: bool,
    svg: Path | None,
    html: Path | None,
    **recipe: Any,
) -> int:
    """Time each layer of an engine, run on zeros: of MODEL, an ONNX file, or the one whose key begins with KEY.

    The engine of MODEL is built if it is missing. The options from --max-batch on choose it; KEY has its own.
    """
    from daemon.commands import engine_profile
    from daemon.commands.report import check_pages, check_plots
    from daemon.config.root import LogConfig
    from daemon.log import logging

    if svg:
        check_plots()
    if html:
        check_pages()
    with logging(LogConfig(format="console")):
        times = engine_profile.measure(target, recipe, batch, runs)
    engine_profile.show(times, top, as_json=as_json)
    engine_profile.draw(times, top, svg, html)
    return 0


@engine.command(epilog=examples("lookout engine show 3f2a --layers yolov8n.onnx"))
@click.argument("key")
@click.option("--layers", type=InputPath(), metavar="MODEL", help="Run it: layers of this ONNX file.")
@CACHE
def show(key: str, layers: Path | None, cache: Path | None) -> int:
    """Everything known of the engine whose key begins with KEY; with --layers what was fused, and the time it takes."""
    from daemon.commands import engines

    engines.show(key, cache)
    if layers:
        engines.layers(key, layers, cache)
    return 0


@engine.command(epilog=examples("lookout engine prune --dry-run"))
@click.option("--unused-days", default=30.0, show_default=True, type=Number(min=0), help="0 for all.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@CACHE
def prune(unused_days: float, dry_run: bool, cache: Path | None) -> int:
    """Remove engines not used for a while, damaged ones, and leftovers. A removed engine is built again when needed."""
    from daemon.clock import SystemClock
    from daemon.commands import engines

    engines.prune(cache, unused_days, SystemClock().utc_ns(), dry_run, click.echo)
    return 0
