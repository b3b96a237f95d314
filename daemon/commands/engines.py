"""`lookout engine`: builds, lists, shows and removes engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from time import gmtime, strftime
from typing import Any

from rich.console import Console
from rich.table import Table

from daemon.commands.engine_profile import RUNS, print_layers
from detectors.factory import (
    GPU_BACKENDS,
    Backend,
    build_engine_for,
    engine_backend,
    engine_store,
    open_detector,
    profile_engine,
)
from detectors.model import digest_of
from detectors.port import DetectorError, Options

_DAY_NS = 86_400 * 10**9


def build(backend: Backend, options: Options) -> None:
    """Build an engine unless it exists, load it, and show it.

    Args:
        backend: of a configuration; where it builds no engines, the best that does.

    Raises:
        DetectorError: it cannot be built here.
    """
    with closing(open_detector(backend if backend in GPU_BACKENDS else engine_backend(), options)) as detector:
        _print_notes(detector.info.notes)
    _print(engine_store(options.cache).entries()[0])


def build_for(cards: Sequence[str], options: Options) -> None:
    """Build an engine for cards that are elsewhere unless it exists, and show it.

    Raises:
        DetectorError: it cannot be built.
    """
    entry = engine_store(options.cache).find(build_engine_for(cards, options))
    _print(entry)
    for path in (entry.plan, entry.plan.with_suffix(".json")):
        Console().print(f"copy {path.name} to the site's folder of engines", highlight=False, soft_wrap=True)


def show(prefix: str, cache: Path | None) -> None:
    """Print all facts about one engine.

    Raises:
        DetectorError: none or several match.
    """
    _print(engine_store(cache).find(prefix))


def layers(prefix: str, model: Path, cache: Path | None) -> None:
    """Print an engine's layers with their times, the slowest first, and unfused Q/DQ nodes.

    Args:
        model: the ONNX file it was built from.

    Raises:
        DetectorError: there is no such engine, it is of another model, or it cannot run here.
    """
    entry = engine_store(cache).find(prefix)
    recipe = entry.manifest.recipe if entry.manifest else {}
    if digest_of(model) != recipe.get("onnx_sha256"):
        raise DetectorError(f"engine {entry.key} was not built from {model}")
    print_layers(profile_engine(entry.key, cache, None, RUNS))


def listing(cache: Path | None) -> None:
    """Print a line per engine, the last used first."""
    store = engine_store(cache)
    table = Table("key", "model", "precision", "batches", "GPU", "built with", "MiB", "last used (UTC)")
    for entry in store.entries():
        if entry.manifest is None:
            table.add_row(entry.key, f"[red]{entry.problem}[/red]", *[""] * 5, _date(entry.used_ns))
            continue
        recipe, size = entry.manifest.recipe, f"{entry.manifest.plan_bytes / (1 << 20):.1f}"
        batches = f"1-{recipe['max_batch']}" if recipe["dynamic"] else str(recipe["max_batch"])
        if kernels := sum(path.stat().st_size for path in entry.kernels):
            size += f" + {kernels / (1 << 20):.1f}"
        manifest = entry.manifest
        what = (manifest.model, recipe["precision"], batches, manifest.short_card, recipe["builder"], size)
        table.add_row(entry.key, *what, _date(entry.used_ns))
    console = Console()
    console.print(table)
    console.print(f"in {store.folder}", highlight=False, soft_wrap=True)


def prune(cache: Path | None, unused_days: float, now_ns: int, dry_run: bool, report: Callable[[str], None]) -> None:
    """Remove leftover files, damaged engines, and engines not loaded for some days.

    Args:
        now_ns: UTC.
        dry_run: only report what would go.
    """
    store = engine_store(cache)
    freed = 0
    verb = "would remove" if dry_run else "removed"
    for entry in store.entries():
        unused = (now_ns - entry.used_ns) / _DAY_NS
        if entry.problem or unused >= unused_days:
            freed += entry.plan.stat().st_size if dry_run else store.remove(entry)
            report(f"{verb} {entry.plan.name}: {entry.problem or f'not used for {unused:.0f} days'}")
    for path in store.leftovers():
        freed += path.stat().st_size
        if not dry_run:
            path.unlink(missing_ok=True)
        report(f"{verb} {path.name}: belongs to no engine")
    report(f"{freed / (1 << 20):.1f} MiB in {store.folder} {'would be' if dry_run else 'are'} free again")


def _print(entry: Any) -> None:
    table = Table(show_header=False)
    table.add_row("key", entry.key)
    if entry.manifest is None:
        table.add_row("problem", f"[red]{entry.problem}[/red]")
    else:
        manifest = entry.manifest
        for name, value in manifest.recipe.items():
            if value != "":
                table.add_row(name, "x".join(map(str, value)) if isinstance(value, list) else str(value))
        table.add_row("for", manifest.card)
        table.add_row("model", manifest.model)
        table.add_row("precision by", manifest.precision_mode)
        table.add_row("accuracy", manifest.accuracy.line if manifest.accuracy else "not measured: `lookout calibrate`")
        table.add_row("built in", f"{manifest.seconds} s, by {manifest.built_by}")
        table.add_row("size", f"{manifest.plan_bytes / (1 << 20):.1f} MiB")
        for path in entry.kernels:
            table.add_row("compiled kernels", f"{path.stat().st_size / (1 << 20):.1f} MiB, {path.name}")
    table.add_row("last used", _date(entry.used_ns))
    console = Console()
    console.print(table)
    console.print(str(entry.plan), highlight=False, soft_wrap=True)


def _print_notes(notes: tuple[str, ...]) -> None:
    for note in notes:
        Console(stderr=True).print(note, highlight=False, soft_wrap=True, markup=False)


def _date(nanoseconds: int) -> str:
    return strftime("%Y-%m-%d %H:%M", gmtime(nanoseconds / 1e9))
