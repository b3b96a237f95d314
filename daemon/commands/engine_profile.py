"""`lookout engine profile`: the time of each layer, as a table, JSON, a picture and a page."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table as Printed

from daemon.commands.report import Page, Table, write_pages
from daemon.commands.report.environment import collect_environment
from daemon.errors import ConfigError, LookoutError
from detectors.factory import profile_engine, profile_model
from detectors.layer_times import Layer, LayerTimes
from detectors.port import Options

RUNS = 50
_HEAD = ("layer", "of", "kind", "reads", "writes", "us", "%")


def measure(target: str, recipe: Mapping[str, Any], batch: int | None, runs: int) -> LayerTimes:
    """Times of the layers of an engine.

    Args:
        target: an ONNX file, or the beginning of an engine's key.
        recipe: fields of `Options` for a file's engine; its `cache` holds all engines.

    Raises:
        DetectorError: the engine cannot be found, built or run.
        ConfigError: the target is a path without a file.
    """
    path = Path(target)
    if path.is_file():
        return profile_model(Options(path, **recipe), batch, runs)
    if path.suffix or len(path.parts) > 1:
        raise ConfigError(f"{target} is no file: give an ONNX file, or a key of `lookout engine list`")
    return profile_engine(target, recipe["cache"], batch, runs)


def show(times: LayerTimes, top: int, *, as_json: bool) -> None:
    """Print a table of the slowest layers, or all layers as JSON."""
    if as_json:
        content = msgspec.json.format(msgspec.json.encode(_plain(times)), indent=2)
        sys.stdout.write(f"{content.decode()}\n")
    else:
        print_layers(times, top)


def print_layers(times: LayerTimes, top: int | None = None) -> None:
    """Print the layers, the slowest first, and unfused Q/DQ nodes.

    Args:
        top: number of layers; None for all.
    """
    console, table = Console(), Printed(*_HEAD)
    for row in times.slowest[:top]:
        table.add_row(*_cells(times, row))
    console.print(table)
    for line in _summary(times, top):
        console.print(line, markup=False)


def draw(times: LayerTimes, top: int, svg: Path | None, html: Path | None) -> None:
    """Write the picture and the page that are asked for, and print their paths to standard error.

    Raises:
        LookoutError: a file cannot be written.
    """
    if svg is None and html is None:
        return
    from daemon.commands.report.layer_plots import slowest

    picture, written = slowest(times, top), []
    if svg:
        try:
            svg.parent.mkdir(parents=True, exist_ok=True)
            svg.write_text(picture)
        except OSError as error:
            raise LookoutError(f"{svg} cannot be written: {error.strerror}") from error
        written.append(svg)
    if html:
        written += write_pages(html.with_suffix(""), _page(times, picture), collect_environment([]))
    sys.stderr.write("".join(f"{path}\n" for path in written))


def _page(times: LayerTimes, picture: str) -> Page:
    headline, *remarks = _summary(times, None)
    tiles = [
        ("a batch", f"{times.milliseconds:.3f} ms", f"of {times.batch}"),
        ("layers", str(len(times.layers)), times.precision),
    ]
    rows = [_cells(times, row) for row in times.slowest]
    title = f"Layers of {times.model}, {times.precision}"
    return Page(
        title, headline, tiles, remarks, [Table("Layers, the slowest first", _HEAD, rows)], [("layers", picture)]
    )


def _cells(times: LayerTimes, row: Layer) -> tuple[str, ...]:
    took = "" if row.milliseconds is None else f"{1000 * row.milliseconds:.1f}"
    share = f"{100 * times.share(row):.1f}" if times.milliseconds and took else ""
    return row.label, str(len(row.parts)), row.kind, row.precision or "?", row.output or "?", took, share


def _summary(times: LayerTimes, top: int | None) -> list[str]:
    counts = Counter(row.precision or "unknown" for row in times.layers)
    shares = dict.fromkeys(counts, 0.0)
    for row in times.layers:
        shares[row.precision or "unknown"] += times.share(row)
    by_precision = ", ".join(f"{counts[name]} {name} ({100 * shares[name]:.0f} %)" for name, _ in counts.most_common())
    lines = [
        f"{times.model}, engine {times.key}, {times.builder}, {times.gpu}: {times.milliseconds:.3f} ms per batch of "
        f"{times.batch}, medians of {times.runs} runs",
        f"{len(times.layers)} layers, by input precision: {by_precision}",
    ]
    rest = times.slowest[top:] if top is not None else []
    if rest:
        lines.append(f"{len(rest)} faster layers, not shown: {100 * sum(map(times.share, rest)):.1f} %")
    unfused = [row.name for row in times.layers if row.unfused]
    lines.append(f"{len(unfused)} unfused Q/DQ nodes{': ' * bool(unfused)}{', '.join(unfused)}")
    untimed = sum(row.milliseconds is None for row in times.layers)
    if untimed:
        lines.append(f"{untimed} layers without a time: the engine reports none for them")
    return lines


def _plain(times: LayerTimes) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(times)
    return {**fields, "milliseconds": times.milliseconds}
