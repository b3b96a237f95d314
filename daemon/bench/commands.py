"""The commands of `lookout bench`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from daemon.bench import options
from daemon.bench.old_names import PEERS, add_old_names
from daemon.commands.groups.options import CACHE, DEVICE, LABELS, PRECISION, examples, renamed, takes_builder_level
from daemon.commands.numbers import Number
from daemon.commands.paths import JSON_FILE, InputPath, OutputFile, OutputFolder
from daemon.progress import progress

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


@bench.command(
    epilog=examples(
        "lookout bench run clip.mp4 --sources 4 --seconds 20",
        "lookout bench run clip.mp4 --sources 24 --paced --repeats 1 --out results/",
    )
)
@options.takes_load
@options.PACED
@click.option("--until-end", is_flag=True, help="Play each recording once, from its beginning to its end.")
@_repeats(5)
@click.option("--copies", default=1, show_default=True, type=click.IntRange(1, 64), help="Concurrent daemons.")
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
    from daemon.bench.show import show_report
    from daemon.commands.report import check_pages

    if (images is None) != (annotations is None):
        raise click.UsageError("--images and --annotations go together")
    if frames_out:
        check_name(frames_out)
    if out:
        check_pages()
    load = options.load_of(values)
    alone = repeats == copies == 1  # in this process
    with progress("bench run", "s" if alone else "repeats", is_plain=alone) as shown:
        report = repeated(
            load,
            repeats,
            copies=copies,
            limits=limits,
            labelled=(images, annotations) if images and annotations else None,
            frames_out=frames_out,
            tell=shown.tell,
        )
    return show_report(report, out, json_file)


@bench.command(
    epilog=examples(
        "lookout bench search clip.mp4 --over batch=1,2,4,8",
        "lookout bench search clip.mp4 --most sources --sources 8",
    )
)
@options.takes_load
@options.PACED
@_repeats(3)
@click.option("--over", type=_Over(), multiple=True, help="Values to combine, such as batch=1,2,4.")
@click.option("--most", "find_most", type=click.Choice(["sources"]), help="The most live ones within the limits below.")
@click.option("--max-dropped", default=0.1, show_default=True, type=Number(0, 100), help="Percent.")
@click.option("--max-p50", default=15.0, show_default=True, type=Number(min=0), help="Due to sent, ms.")
@click.option("--max-p99", default=40.0, show_default=True, type=Number(min=0), help="Likewise.")
@click.option("--step", default=4, show_default=True, type=click.IntRange(1), help="Resolution, in sources.")
@click.option(
    "--confirm",
    default=120.0,
    show_default=True,
    type=Number(min=0),
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
    from daemon.bench.pages import summary_of
    from daemon.bench.result import Constraints, write
    from daemon.bench.search import combinations, grid, max_met, most_sources
    from daemon.bench.show import show_report
    from daemon.commands.report import check_pages
    from daemon.commands.report.tables import print_line

    if bool(over) == bool(find_most):
        raise click.UsageError("give either --over, such as --over batch=1,2,4, or --most sources")
    check_pages()
    if find_most:
        constraints = Constraints(max_dropped, max_p50, max_p99, confirm)
        load = options.load_of({**values, "paced": True})

        def keep(report: Report) -> None:
            for file in filter(None, (out / "search.json", json_file)):
                write(file, report)
            print_line(summary_of(report.cases[-1]))

        report = most_sources(load, constraints, step, on_case=keep)
        code = show_report(report, out, json_file)
        print_line(f"{max_met(report)} sources met the limits for {max(confirm, values['seconds']):g} s")
        return code
    load, axes = options.load_of(values), dict(over)
    with progress("bench search", "configurations") as shown:
        shown.tell(0, len(combinations(load, axes)))

        def measured(case: Case) -> None:
            shown.note(summary_of(case))
            shown.advance()

        report = grid(load, axes, out / "search.json", repeats=repeats, on_case=measured)
    return show_report(report, out, json_file)


@part.command(epilog=examples("lookout bench part decode clip.mp4 --seconds 2"))
@click.argument("clip", type=InputPath())
@click.option(
    "--sessions", default=[7, 28, 56, 150], show_default=True, multiple=True, type=click.IntRange(1), help="Repeat it."
)
@click.option("--seconds", default=3.0, show_default=True, type=options.SECONDS, help="In steady state, per number.")
@click.option("--processes", default=4, show_default=True, type=click.IntRange(1), help="Processes that share them.")
@click.option("--low-latency", is_flag=True, help="As for live sources: each picture without delay.")
@DEVICE
@JSON_FILE
def decode(json_file: Path | None, **values: Any) -> int:
    """The GPU's decoder: pictures per second, utilisation, CPU and memory, by number of sessions."""
    from daemon.bench.decode import DecodeOptions
    from daemon.bench.decode import decode as run_decode
    from daemon.bench.tables import decode as table
    from daemon.commands.report.tables import show, write_json

    result = run_decode(DecodeOptions(**values))
    write_json(json_file, result)
    show(table(result))
    return 0


@part.command(epilog=examples("lookout bench part engine yolov8n.onnx"))
@click.argument("model", type=InputPath())
@LABELS
@PRECISION
@takes_builder_level()
@CACHE
@click.option("--max-batch", default=32, show_default=True, type=options.BATCHES)
@click.option("--seconds", default=3.0, show_default=True, type=options.SECONDS, help="In steady state.")
@click.option("--backend", type=click.Choice(["trt", "trt-rtx"]), help="[default: the best for this GPU]")
@DEVICE
@renamed("--peer", "--peer-python", "--peer-timeout", "--server", "--threads", now=PEERS)
@JSON_FILE
def engine(json_file: Path | None, **values: Any) -> int:
    """The GPU's engine: images per second of the engine alone."""
    from daemon.bench.engine import EngineOptions
    from daemon.bench.engine import engine as run_engine
    from daemon.bench.tables import engine as table
    from daemon.commands.report.tables import show, write_json

    result = run_engine(EngineOptions(**values))
    write_json(json_file, result)
    show(table(result))
    return 0


@bench.command(
    epilog=examples(
        "lookout bench compare old/run.json new/run.json",
        "lookout bench compare fp32.jsonl int8.jsonl --iou 0.9",
    )
)
@click.argument("old", type=InputPath())
@click.argument("new", type=InputPath())
@click.option(
    "--least",
    "minimum",
    default=2.0,
    show_default=True,
    type=Number(min=0),
    help="Percent to report.",
)
@click.option("--iou", default=0.95, show_default=True, type=Number(0, 1), help="Of matching boxes.")
@click.option("--agreement", default=1.0, show_default=True, type=Number(0, 1), help="Share that must match.")
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


@bench.command(epilog=examples("lookout bench report results/run.json --out results/"))
@click.argument("files", nargs=-1, required=True, type=InputPath())
@click.option("--out", type=OutputFolder(), default=Path("bench-results"), show_default=True)
def report(files: tuple[Path, ...], out: Path) -> int:
    """Write Markdown and HTML again from the FILES of `run` and `search`."""
    from daemon.bench.result import read
    from daemon.bench.show import show_report
    from daemon.commands.report import check_pages

    check_pages()
    for found in [read(file) for file in files]:
        show_report(found, out, None)
    return 0


add_old_names(bench, part)
