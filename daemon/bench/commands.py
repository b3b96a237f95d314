"""The commands of `lookout bench`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from daemon.bench import options
from daemon.commands.groups.options import LABELS
from daemon.commands.paths import JSON_FILE, InputPath, OutputFile, OutputFolder
from daemon.redact import Url

if TYPE_CHECKING:
    from daemon.bench.result import Case, Report

_Command = TypeVar("_Command", bound=Callable[..., Any])
_FRAMES = (".jsonl", ".parquet")


@click.group()
def bench() -> None:
    """Measure Lookout on recordings."""


@bench.group()
def part() -> None:
    """Measure one part alone, an upper bound for the whole."""


class _Over(click.ParamType):  # type: ignore[type-arg]
    """A setting and its values, checked by the option of the same name."""

    name = "SETTING=V,V,.."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, list[Any]]:
        from daemon.bench.search import SETTINGS

        name, _, words = value.partition("=")
        if name not in SETTINGS:
            self.fail(f"{name!r} is not a setting: choose from {', '.join(SETTINGS)}", param, ctx)
        (option,) = (option for option in search.params if option.name == name)
        return name, [option.type.convert(word, option, ctx) for word in words.split(",")]


def _repeats(default: int) -> Callable[[_Command], _Command]:
    return click.option("--repeats", default=default, show_default=True, type=click.IntRange(1), help="Runs per case.")


@bench.command()
@options.takes_load
@options.PACED
@click.option("--until-end", is_flag=True, help="Play each recording once, from its beginning to its end.")
@_repeats(5)
@click.option("--copies", default=1, show_default=True, type=click.IntRange(1), help="Concurrent daemons.")
@click.option("--limits/--no-limits", default=False, help="Measure decoder and engine alone first.")
@click.option("--images", type=InputPath(), help="Photos, to measure accuracy too.")
@click.option("--annotations", type=InputPath(), help="Their labels: a COCO file.")
@click.option("--frames-out", type=OutputFile(), help="Record every frame: .jsonl or .parquet.")
@click.option("--out", type=OutputFolder(), help="Folder for a report: JSON, Markdown and HTML.")
@JSON_FILE
def run(
    repeats: int,
    copies: int,
    limits: bool,
    images: Path | None,
    annotations: Path | None,
    frames_out: Path | None,
    out: Path | None,
    json_file: Path | None,
    **values: Any,
) -> int:
    """Run CLIPS or URLs as sources through the whole daemon, with repeats, and print the figures."""
    from daemon.bench.recording import check_name
    from daemon.bench.repeats import repeated

    if (images is None) != (annotations is None):
        raise click.UsageError("--images and --annotations go together")
    if frames_out:
        check_name(frames_out)
    _check_pages(out)
    load = options.load_of(values)
    with _progress("repeats", repeats) as advance:
        report = repeated(
            load,
            repeats,
            copies=copies,
            limits=limits,
            labelled=(images, annotations) if images and annotations else None,
            frames_out=frames_out,
            on_repeat=lambda: advance(""),
        )
    return _show_report(report, out, json_file)


@bench.command()
@options.takes_load
@options.PACED
@_repeats(3)
@click.option("--over", type=_Over(), multiple=True, help="Values to combine, such as batch=1,2,4.")
@click.option("--most", "find_most", type=click.Choice(["sources"]), help="The most live ones within the limits below.")
@click.option("--max-dropped", default=0.1, show_default=True, type=click.FloatRange(0, 100), help="Percent.")
@click.option("--max-p50", default=15.0, show_default=True, type=click.FloatRange(min=0), help="Due to sent, ms.")
@click.option("--max-p99", default=40.0, show_default=True, type=click.FloatRange(min=0), help="Likewise.")
@click.option("--step", default=4, show_default=True, type=click.IntRange(1), help="Resolution, in sources.")
@click.option(
    "--confirm",
    default=120.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds of the confirming run; 0 for --seconds.",
)
@click.option("--out", type=OutputFolder(), default=Path("bench-results"), show_default=True,
              help="Folder of the report: JSON, Markdown and HTML.")  # fmt: skip
@JSON_FILE
def search(
    repeats: int,
    over: tuple[tuple[str, list[Any]], ...],
    find_most: str | None,
    max_dropped: float,
    max_p50: float,
    max_p99: float,
    step: int,
    confirm: float,
    out: Path,
    json_file: Path | None,
    **values: Any,
) -> int:
    """Measure a grid of settings (--over), resuming an interrupted one, or find the --most sources, starting from
    --sources."""
    from daemon.bench.result import Constraints
    from daemon.bench.search import combinations, grid, max_met, most_sources
    from daemon.commands.report.tables import print_line

    if bool(over) == bool(find_most):
        raise click.UsageError("give either --over, such as --over batch=1,2,4, or --most sources")
    _check_pages(out)
    if find_most:
        constraints = Constraints(max_dropped, max_p50, max_p99, confirm)
        load = options.load_of({**values, "paced": True})
        report = most_sources(load, constraints, step, on_case=lambda case: print_line(_summary(case)))
        code = _show_report(report, out, json_file)
        print_line(f"{max_met(report)} sources met the limits for {max(confirm, values['seconds']):g} s")
        return code
    load, axes = options.load_of(values), dict(over)
    with _progress("configurations", len(combinations(load, axes))) as advance:
        report = grid(load, axes, out / "search.json", repeats=repeats, on_case=lambda case: advance(_summary(case)))
    return _show_report(report, out, json_file)


@part.command()
@click.argument("clip", type=InputPath())
@click.option(
    "--sessions", default=[7, 28, 56, 150], show_default=True, multiple=True, type=click.IntRange(1), help="Repeat it."
)
@click.option("--seconds", default=3.0, show_default=True, type=options.SECONDS, help="In steady state, per number.")
@click.option("--processes", default=4, show_default=True, type=click.IntRange(1), help="Processes that share them.")
@click.option("--low-latency", is_flag=True, help="As for live sources: each picture without delay.")
@options.DEVICE
@JSON_FILE
def decode(json_file: Path | None, **values: Any) -> int:
    """The GPU's decoder: pictures per second, utilisation, CPU and memory, by number of sessions."""
    from daemon.bench.decode import DecodeOptions
    from daemon.bench.decode import decode as run_decode
    from daemon.bench.tables import decode as table
    from daemon.commands.report.tables import show, write_json

    result = run_decode(DecodeOptions(**values))
    show(table(result))
    write_json(json_file, result)
    return 0


@part.command()
@click.argument("model", type=InputPath())
@LABELS
@options.PRECISION
@options.LEVEL
@options.CACHE
@click.option("--max-batch", default=32, show_default=True, type=options.BATCHES)
@click.option("--seconds", default=3.0, show_default=True, type=options.SECONDS, help="In steady state.")
@options.DEVICE
@options.takes_peers
@JSON_FILE
def engine(
    peers: tuple[str, ...],
    pythons: tuple[tuple[str, Path], ...],
    timeout_s: float,
    server: str | None,
    threads: int,
    json_file: Path | None,
    **values: Any,
) -> int:
    """The GPU's engine: images per second of the engine alone, and of others beside it (--peer)."""
    from daemon.bench import tables
    from daemon.bench.engine import EngineOptions
    from daemon.bench.engine import engine as run_engine
    from daemon.bench.peers.compare import peer_rates
    from daemon.commands.report.tables import print_line, show, write_json

    wanted = EngineOptions(**values)
    beside = options.peer_options(wanted, peers, pythons, server, threads=threads, timeout_s=timeout_s)
    if beside is None:
        result = run_engine(wanted)
        show(tables.engine(result))
        write_json(json_file, result)
        return 0
    with _progress("engines", len(beside.peers) + 1) as advance:
        found = peer_rates(beside, lambda row: advance(f"{row.engine}: {row.images_per_s or 'not run'}"))
    show(tables.peers(found))
    for row in found.engines:
        if row.note:
            print_line(f"{row.engine}: {row.note}")
    write_json(json_file, found)
    return 0


@part.command()
@click.argument("clip", required=False, type=InputPath())
@click.option("--max-batch", type=options.BATCHES, help="[default: 32, and 8 with CLIP]")
@click.option("--frames", type=click.IntRange(1), help="[default: 60000 of all sources, and 300 of CLIP]")
@click.option("--sources", default=150, show_default=True, type=click.IntRange(1), help="Without CLIP.")
@click.option("--lanes", default=2, show_default=True, type=options.LANES, help="Without CLIP.")
@click.option("--boxes", default=10, show_default=True, type=click.IntRange(0), help="Per frame, without CLIP.")
@click.option("--analytics", is_flag=True, help="The boxes move, with tracks and four rules a source, without CLIP.")
@options.ENCODING
@options.MODEL
@LABELS
@options.THREADS
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="With CLIP.")
@JSON_FILE
def python(clip: Path | None, max_batch: int | None, frames: int | None, json_file: Path | None, **values: Any) -> int:
    """The cost of a frame without decoding and inference. With CLIP: a lossless replay on the CPU, interleaved with a
    bare onnxruntime loop over decoded frames."""
    from daemon.bench import tables
    from daemon.bench.efficiency import EfficiencyOptions, efficiency
    from daemon.bench.overhead import OverheadOptions, overhead
    from daemon.commands.report.tables import show, write_json

    def some(*names: str) -> dict[str, Any]:
        return {name: values[name] for name in names}

    if clip is None:
        found = overhead(
            OverheadOptions(
                frames=frames or 150_000,
                max_batch=max_batch or 32,
                **some("sources", "lanes", "boxes", "encoding", "analytics"),
            )
        )
        show(tables.overhead(found))
        write_json(json_file, found)
        return 0
    wanted = EfficiencyOptions(
        clip, frames=frames or 300, max_batch=max_batch or 8, **some("model", "labels", "threads", "rounds")
    )
    result = efficiency(wanted)
    show(tables.efficiency(result))
    write_json(json_file, result)
    return 0


@part.command()
@click.option(
    "--objects",
    default=[1, 5, 20, 50, 100, 200, 300],
    show_default=True,
    multiple=True,
    type=click.IntRange(1, 1000),
    help="In a picture. Repeat it.",
)
@click.option("--sources", default=32, show_default=True, type=click.IntRange(1, 1000), help="In a batch.")
@click.option("--frames", default=60, show_default=True, type=click.IntRange(1), help="Of each source.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Of the objects' paths.")
@JSON_FILE
def analytics(json_file: Path | None, **values: Any) -> int:
    """The cost of tracking a frame, by the number of objects in it."""
    from daemon.bench import tables
    from daemon.bench.analytics import AnalyticsOptions
    from daemon.bench.analytics import analytics as run_analytics
    from daemon.commands.report.tables import show, write_json

    result = run_analytics(AnalyticsOptions(**values))
    show(tables.analytics(result))
    write_json(json_file, result)
    return 0


@part.command()
@click.option("--sources", default=10_000, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--members", default=100, show_default=True, type=click.IntRange(1, 1000))
@click.option("--lost", default=10, show_default=True, type=click.IntRange(1), help="Members, at once; and new ones.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Of the priorities.")
@JSON_FILE
def fleet(json_file: Path | None, **values: Any) -> int:
    """The time to compute where the sources of a fleet are to be."""
    from daemon.bench import tables
    from daemon.bench.fleet import FleetOptions
    from daemon.bench.fleet import fleet as run_fleet
    from daemon.commands.report.tables import show, write_json

    result = run_fleet(FleetOptions(**values))
    show(tables.fleet(result))
    write_json(json_file, result)
    return 0


@bench.command()
@click.argument("clip", required=False, type=InputPath())
@click.option("--sources", default=16, show_default=True, type=click.IntRange(1, 64), help="Cameras, all watched live.")
@click.option("--seconds", default=6.0, show_default=True, type=click.FloatRange(1, 20), help="Of each measurement.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="Of all ways to watch in turns.")
@click.option("--viewers", default=50, show_default=True, type=click.IntRange(1, 500), help="Of one camera.")
@JSON_FILE
def dashboard(
    clip: Path | None, sources: int, seconds: float, rounds: int, viewers: int, json_file: Path | None
) -> int:
    """Measure what viewers of the page cost the daemon and the page's own process. CLIP plays as every camera."""
    import msgspec
    from rich.console import Console
    from rich.table import Table

    from daemon.bench.load import check_clip
    from daemon.bench.page_cost import PageCostOptions, page_costs
    from daemon.commands.run import check_page_libraries
    from daemon.sources.synthetic_clip import synthetic_clip

    check_page_libraries()
    clip = clip or synthetic_clip()
    check_clip(Url(str(clip)))
    rows = page_costs(PageCostOptions(clip, sources, seconds, rounds, viewers))
    table = Table("watched", "viewers of each", "boxes", "daemon", "more than idle", "page", "page MiB", "MiB/s")
    for row in rows:
        figures = (f"{row.daemon:.1f} %", f"{row.more:+.1f} %", f"{row.page:.1f} %", f"{row.page_rss / (1 << 20):.0f}")
        table.add_row(
            str(row.watched), str(row.viewers), "yes" if row.boxes else "no", *figures, f"{row.received_mib_s:.2f}"
        )
    Console().print(table)
    Console().print("percent of a core; medians over the rounds", highlight=False)
    if json_file:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=2) + b"\n")
    return 0


@bench.command()
@click.argument("old", type=InputPath())
@click.argument("new", type=InputPath())
@click.option(
    "--least",
    "minimum",
    default=2.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Percent to report.",
)
@click.option("--iou", default=0.95, show_default=True, type=click.FloatRange(0, 1), help="Of matching boxes.")
@click.option("--agreement", default=1.0, show_default=True, type=click.FloatRange(0, 1), help="Share that must match.")
def compare(old: Path, new: Path, minimum: float, iou: float, agreement: float) -> int:
    """Compare two reports (.json) metric by metric, or two recordings of --frames-out (.jsonl, .parquet) box by box.
    Exit code 1 if a metric is worse, or if too few boxes agree."""
    from daemon.bench import tables
    from daemon.bench.compare import compare_reports, too_few
    from daemon.bench.compare_frames import compare_frames
    from daemon.bench.result import read
    from daemon.commands.report.tables import print_line, show

    recorded = [path.suffix in _FRAMES for path in (old, new)]
    if recorded[0] != recorded[1]:
        raise click.UsageError("give two reports (.json), or two recordings (.jsonl, .parquet)")
    if all(recorded):
        found = compare_frames(old, new, iou)
        show(tables.agreement(found))
        return int(found.share < agreement)
    before, after = read(old), read(new)
    changes = compare_reports(before, after, minimum / 100)
    show(tables.changes(changes))
    if reason := too_few(before, after):
        print_line(reason)
    return int(any(change.result == "worse" for change in changes))


@bench.command()
@click.argument("files", nargs=-1, required=True, type=InputPath())
@click.option("--out", type=OutputFolder(), default=Path("bench-results"), show_default=True)
def report(files: tuple[Path, ...], out: Path) -> int:
    """Write Markdown and HTML again from the FILES of `run` and `search`."""
    from daemon.bench.result import read

    _check_pages(out)
    for found in [read(file) for file in files]:
        _show_report(found, out, None)
    return 0


_OLD_NAMES = {
    "streams": "lookout bench run --repeats 1",
    "replay": "lookout bench run",
    "once": "lookout bench run --until-end --repeats 1",
    "sweep": "lookout bench search --over batch=1,2,4,8",
    "capacity": "lookout bench search --most sources",
    "decode": "lookout bench part decode",
    "engine": "lookout bench part engine",
    "overhead": "lookout bench part python",
    "efficiency": "lookout bench part python CLIP",
    "verify": "lookout bench compare",
    "peers": "python -m tests.peers, in a checkout",
    "loop": "python -m tests.peers --only plain, in a checkout",
    "churn": "python -m tests.gpu.churn, in a checkout",
}


def _renamed(old: str, new: str) -> click.Command:
    def refuse() -> None:
        raise click.UsageError(f"bench {old} is now: {new}")

    lenient = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    return click.Command(old, callback=refuse, hidden=True, add_help_option=False, context_settings=lenient)


for _old, _new in _OLD_NAMES.items():
    bench.add_command(_renamed(_old, _new))


def _check_pages(out: Path | None) -> None:
    from daemon.bench.pages import check_installed

    if out:
        check_installed()


def _show_report(report: Report, out: Path | None, json_file: Path | None) -> int:
    """Show a report on the terminal and write the requested files."""
    from daemon.bench.pages import page_of, save
    from daemon.bench.result import write
    from daemon.commands.report.tables import print_line, show

    show(page_of(report))
    for path in save(report, out) if out else []:
        print_line(str(path))
    if json_file:
        write(json_file, report)
    return 0


def _summary(case: Case) -> str:
    """A case in one line."""
    from daemon.bench.pages import summary_of

    return summary_of(case)


@contextmanager
def _progress(unit: str, total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar; the yielded function prints a line and advances it. A single run has none: this process is
    measured."""
    if total == 1:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(unit), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), "left", TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total)

        def advance(text: str) -> None:
            if text:
                bar.console.print(text, highlight=False, markup=False, soft_wrap=True)
            bar.advance(task)

        yield advance
