"""The commands of `lookout bench` that measure as often as it takes, and write and read reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from daemon.bench.options import PACED, load_of, takes_load
from daemon.outputs import OutputFile, OutputFolder
from detectors.port import Precision

if TYPE_CHECKING:
    from daemon.bench.result import Report

_Command = TypeVar("_Command", bound=Callable[..., Any])
_OUT = click.option(
    "--out",
    type=OutputFolder(),
    default=Path("bench-results"),
    show_default=True,
    help="Folder of the report: JSON, Markdown and HTML.",
)


def _repeats(default: int) -> Callable[[_Command], _Command]:
    return click.option("--repeats", default=default, show_default=True, type=click.IntRange(1), help="Of each run.")


class _Numbers(click.ParamType):  # type: ignore[type-arg]
    """Whole numbers with commas between."""

    name = "N,N,.."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            found = tuple(int(part) for part in value.split(","))
        except ValueError:
            found = ()
        if not found or min(found) < 1:
            self.fail(f"{value!r} is not a list like 1,2,4", param, ctx)
        return found


@click.command()
@takes_load
@PACED
@_repeats(5)
@click.option("--copies", default=1, show_default=True, type=click.IntRange(1), help="Daemons at once.")
@click.option("--images", type=click.Path(path_type=Path), help="Photos, to measure the accuracy as well.")
@click.option("--annotations", type=click.Path(path_type=Path), help="What is on them: a COCO file.")
@click.option("--frames-out", type=OutputFile(), help="Record every frame: .jsonl or .parquet.")
@_OUT
def replay(
    repeats: int,
    copies: int,
    images: Path | None,
    annotations: Path | None,
    frames_out: Path | None,
    out: Path,
    **wishes: Any,
) -> int:
    """A recording as many sources through the whole daemon: everything there is to measure, and how sure it is."""
    from daemon.bench.recording import check_name
    from daemon.bench.replay import replay as run_replay

    _check_pages()
    if (images is None) != (annotations is None):
        raise click.UsageError("--images and --annotations go together")
    if frames_out:
        check_name(frames_out)
    labelled = (images, annotations) if images and annotations else None
    with _progress("repeats", repeats) as advance:
        report = run_replay(
            load_of(wishes),
            repeats=repeats,
            copies=copies,
            labelled=labelled,
            frames_out=frames_out,
            on_repeat=lambda: advance(""),
        )
    return _save(report, out)


@click.command()
@takes_load
@PACED
@_repeats(3)
@click.option("--batches", type=_Numbers(), default=(1, 2, 4, 8), show_default="1,2,4,8", help="That lanes take.")
@click.option("--lane-counts", type=_Numbers(), default=(), help="Numbers of lanes.")
@click.option("--source-counts", type=_Numbers(), default=(), help="Numbers of sources.")
@click.option("--precisions", default="", help="With commas between: fp32,fp16.")
@_OUT
def sweep(
    repeats: int,
    batches: tuple[int, ...],
    lane_counts: tuple[int, ...],
    source_counts: tuple[int, ...],
    precisions: str,
    out: Path,
    **wishes: Any,
) -> int:
    """Every combination of batches, lanes, precisions and sources; goes on where it was interrupted."""
    from daemon.bench.result import Case
    from daemon.bench.sweep import Grid
    from daemon.bench.sweep import sweep as run_sweep

    _check_pages()
    asked: list[Any] = [word for word in precisions.split(",") if word]
    if unknown := set(asked) - set(get_args(Precision)):
        raise click.UsageError(
            f"--precisions: unknown {sorted(unknown)[0]}; known are {', '.join(get_args(Precision))}"
        )
    load, grid = load_of(wishes), Grid(batches, lane_counts, asked, source_counts)
    with _progress("configurations", len(grid.loads(load))) as advance:

        def done(case: Case) -> None:
            names = ("sources", "lanes", "batch", "precision")
            words = ", ".join(f"{name} {case.load[name]}" for name in names if case.load[name] is not None)
            fps = case.value("fps")
            advance(f"{words}: {f'{fps:.1f} frames/s' if fps is not None else case.failed}")

        report = run_sweep(load, grid, out / "sweep.json", repeats=repeats, on_case=done)
    return _save(report, out)


@click.command()
@takes_load
@click.option("--dropped", default=0.1, show_default=True, type=click.FloatRange(min=0), help="Percent, at most.")
@click.option("--p50", default=15.0, show_default=True, type=click.FloatRange(min=0), help="Due to sent, ms.")
@click.option("--p99", default=40.0, show_default=True, type=click.FloatRange(min=0), help="Likewise.")
@click.option("--step", default=4, show_default=True, type=click.IntRange(1), help="Sources that it may be off.")
@_OUT
def capacity(dropped: float, p50: float, p99: float, step: int, out: Path, **wishes: Any) -> int:
    """The largest number of live sources that are served as they should be, by trying; begins with --sources."""
    from daemon.bench.capacity import Promise, held
    from daemon.bench.capacity import capacity as run_capacity
    from daemon.report import said, trial

    _check_pages()
    report = run_capacity(load_of({**wishes, "paced": True}), Promise(dropped, p50, p99), step, trial)
    said(f"{held(report)} sources hold, as far as these runs of {wishes['seconds']:g} s tell")
    return _save(report, out)


@click.command()
@takes_load
@_repeats(3)
@click.option(
    "--ultralytics-python", type=click.Path(path_type=Path), help="An interpreter with ultralytics, to run its predict."
)
@click.option("--ultralytics-model", default="yolov8n.yaml", show_default=True, help="Its own name of the model.")
@_OUT
def peers(repeats: int, ultralytics_python: Path | None, ultralytics_model: str, out: Path, **wishes: Any) -> int:
    """Lookout beside what is used instead and beside the limits of the hardware, in turns over the same recording."""
    from daemon.bench.peers import Ultralytics
    from daemon.bench.peers import peers as run_peers

    _check_pages()
    other = Ultralytics(ultralytics_python, ultralytics_model) if ultralytics_python else None
    with _progress("runs", repeats * (4 if other else 3)) as advance:
        report = run_peers(load_of(wishes), repeats=repeats, ultralytics=other, on_side=advance)
    return _save(report, out)


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@_OUT
def report(files: tuple[Path, ...], out: Path) -> int:
    """Markdown and HTML, anew, of FILES that these commands wrote."""
    from daemon.bench.result import read

    _check_pages()
    for found in [read(file) for file in files]:
        _save(found, out)
    return 0


@click.command()
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option("--least", default=2.0, show_default=True, type=click.FloatRange(min=0), help="Percent worth a word.")
def compare(old: Path, new: Path, least: float) -> int:
    """OLD and NEW, metric by metric: better, worse, or the same within the noise; exit code 1 if any is worse."""
    from daemon.bench.compare import compare as run_compare
    from daemon.bench.compare import too_few
    from daemon.bench.result import read
    from daemon.report import compared, said

    before, after = read(old), read(new)
    changes = run_compare(before, after, least / 100)
    compared(changes)
    if reason := too_few(before, after):
        said(reason)
    return int(any(change.verdict == "worse" for change in changes))


@click.command()
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option("--iou", default=0.95, show_default=True, type=click.FloatRange(0, 1), help="Of boxes that are the same.")
@click.option("--agreement", default=1.0, show_default=True, type=click.FloatRange(0, 1), help="Share that must match.")
def verify(a: Path, b: Path, iou: float, agreement: float) -> int:
    """Two recordings of --frames-out, frame by frame and box by box; exit code 1 if they agree too little."""
    from daemon.bench.verify import verify as run_verify
    from daemon.report import verified

    result = run_verify(a, b, iou)
    verified(result)
    return int(result.share < agreement)


COMMANDS = (replay, sweep, capacity, peers, report, compare, verify)


def _check_pages() -> None:
    from daemon.bench.pages import check_installed

    check_installed()


def _save(report: Report, out: Path) -> int:
    from daemon.bench.pages import save
    from daemon.report import measured, said

    measured(report.cases)
    for path in save(report, out):
        said(str(path))
    return 0


@contextmanager
def _progress(unit: str, total: int) -> Iterator[Callable[[str], None]]:
    """A bar with the time that is left; the function within says what is done, and moves it on."""
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

        def advance(words: str) -> None:
            if words:
                bar.console.print(words, highlight=False, markup=False)
            bar.advance(task)

        yield advance
