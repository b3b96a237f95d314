"""`lookout bench`: thin commands over the benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from daemon.outputs import JSON_FILE, OutputFile, OutputFolder
from daemon.redact import Url
from detectors.port import Precision

if TYPE_CHECKING:
    from daemon.bench.load import Load
    from daemon.bench.result import Case, Report

_Command = TypeVar("_Command", bound=Callable[..., Any])
_FRAMES = (".jsonl", ".parquet")


@click.group()
def bench() -> None:
    """Measure Lookout on recordings."""


@bench.group()
def part() -> None:
    """Measure one part alone: what the whole can reach at most."""


def _clip(named: str) -> Path | Url:
    """A recording, or the URL of a live source."""
    url = Url(named)
    return Path(named.removeprefix("file://")) if url.scheme in ("", "file") else url


class _Over(click.ParamType):  # type: ignore[type-arg]
    """A setting and its values, each of which must be one that the option of the same name takes."""

    name = "SETTING=V,V,.."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, list[Any]]:
        from daemon.bench.search import SETTINGS

        name, _, words = value.partition("=")
        if name not in SETTINGS:
            self.fail(f"{name!r} is no setting; there are {', '.join(SETTINGS)}", param, ctx)
        (option,) = (option for option in search.params if option.name == name)
        return name, [option.type.convert(word, option, ctx) for word in words.split(",")]


_SECONDS = click.FloatRange(min=0.1)
_LANES = click.IntRange(1, 16)  # as the configuration has it, and the next
_BATCHES = click.IntRange(1, 256)
_PRECISION = click.option("--precision", default="auto", show_default=True, type=click.Choice(get_args(Precision)))
_LEVEL = click.option("--builder-level", default=3, show_default=True, type=click.IntRange(0, 5))
_CACHE = click.option("--cache", type=click.Path(path_type=Path), help="Folder of built engines.")
_LABELS = click.option("--labels", help="Labels file, or coco, for a model without.")
_MODEL = click.option("--model", type=click.Path(path_type=Path), help="ONNX file.  [default: the demo model]")
_DEVICE = click.option("--device", default=0, show_default=True, type=click.IntRange(0), help="Number of the GPU.")
_THREADS = click.option(
    "--threads", default=0, show_default=True, type=click.IntRange(0), help="Of the CPU, 0 for all."
)
_ENCODING = click.option("--encoding", default="json", show_default=True, type=click.Choice(["json", "msgpack"]))
_PACED = click.option(
    "--paced/--lossless",
    default=False,
    help="At the clips' own pace and live, or every frame as fast as possible.  [default: lossless]",
)
_LOAD = [
    click.argument("clips", nargs=-1, type=_clip),
    click.option("--sources", type=click.IntRange(1), help="Taking the clips in turn.  [default: 28, or one a clip]"),
    click.option("--seconds", default=20.0, show_default=True, type=_SECONDS, help="In steady state."),
    click.option("--warm-up", default=12.0, show_default=True, type=click.FloatRange(min=0),
                 help="Seconds at most, until throughput and p99 are steady."),
    click.option("--phase", default=2.0, show_default=True, type=click.FloatRange(min=0),
                 help="Each source begins at a random moment of so many first seconds of its clip."),
    click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Of those moments."),
    _MODEL,
    _LABELS,
    click.option("--backend", default="auto", show_default=True, type=click.Choice(["auto", "trt", "cpu"])),
    _PRECISION,
    _LEVEL,
    _CACHE,
    _THREADS,
    click.option("--lanes", default=2, show_default=True, type=_LANES),
    click.option("--max-batch", default=32, show_default=True, type=_BATCHES, help="That the engine is made for."),
    click.option("--batch", type=_BATCHES, help="That a lane takes at most.  [default: --max-batch]"),
    click.option("--decode", default="auto", show_default=True, type=click.Choice(["auto", "nvdec", "cpu"])),
    click.option("--processes", type=click.IntRange(0, 16), help="That capture.  [default: as many as suits]"),
    _ENCODING,
    click.option("--admission", default="off", show_default=True, type=click.Choice(["off", "degrade", "refuse"])),
    click.option("--mps", default="auto", show_default=True, type=click.Choice(["auto", "off"])),
    _DEVICE,
    click.option("--memory-limit", type=click.IntRange(1), help="MiB of the GPU's memory.  [default: what is free]"),
]  # fmt: skip


def _takes_load(command: Callable[..., int]) -> Callable[..., int]:
    for option in reversed(_LOAD):
        command = option(command)
    return command


def _repeats(default: int) -> Callable[[_Command], _Command]:
    return click.option("--repeats", default=default, show_default=True, type=click.IntRange(1), help="Of each run.")


def _load_of(wishes: Mapping[str, Any]) -> Load:
    """Of the options of `_takes_load`; a drawn street where no clip is named.

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


@bench.command()
@_takes_load
@_PACED
@click.option("--until-end", is_flag=True, help="Play each recording once, from its beginning to its end.")
@_repeats(5)
@click.option("--copies", default=1, show_default=True, type=click.IntRange(1), help="Daemons at once.")
@click.option("--limits/--no-limits", default=False, help="First the decoder alone and the engine alone.")
@click.option("--images", type=click.Path(path_type=Path), help="Photos, to measure the accuracy as well.")
@click.option("--annotations", type=click.Path(path_type=Path), help="What is on them: a COCO file.")
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
    **wishes: Any,
) -> int:
    """CLIPS or URLs as many sources through the whole daemon: everything there is to measure, and how sure it is."""
    from daemon.bench.recording import check_name
    from daemon.bench.repeats import repeated

    if (images is None) != (annotations is None):
        raise click.UsageError("--images and --annotations go together")
    if frames_out:
        check_name(frames_out)
    _check_pages(out)
    load = _load_of(wishes)
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
    return _told(report, out, json_file)


@bench.command()
@_takes_load
@_PACED
@_repeats(3)
@click.option("--over", type=_Over(), multiple=True, help="Values to combine with all others, as batch=1,2,4.")
@click.option("--most", type=click.Choice(["sources"]), help="Find how many live ones meet the limits below.")
@click.option("--max-dropped", default=0.1, show_default=True, type=click.FloatRange(0, 100), help="Percent.")
@click.option("--max-p50", default=15.0, show_default=True, type=click.FloatRange(min=0), help="Due to sent, ms.")
@click.option("--max-p99", default=40.0, show_default=True, type=click.FloatRange(min=0), help="Likewise.")
@click.option("--step", default=4, show_default=True, type=click.IntRange(1), help="Sources that it may be off.")
@click.option(
    "--confirm",
    default=120.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds that the answer must hold; 0 for no more than --seconds.",
)
@click.option("--out", type=OutputFolder(), default=Path("bench-results"), show_default=True,
              help="Folder of the report: JSON, Markdown and HTML.")  # fmt: skip
@JSON_FILE
def search(
    repeats: int,
    over: tuple[tuple[str, list[Any]], ...],
    most: str | None,
    max_dropped: float,
    max_p50: float,
    max_p99: float,
    step: int,
    confirm: float,
    out: Path,
    json_file: Path | None,
    **wishes: Any,
) -> int:
    """A grid of settings (--over), which goes on where it was interrupted, or --most sources, beginning with
    --sources."""
    from daemon.bench.result import Constraints
    from daemon.bench.search import combinations, grid, held, most_sources
    from daemon.report import said

    if bool(over) == bool(most):
        raise click.UsageError("give either --over, such as --over batch=1,2,4, or --most sources")
    _check_pages(out)
    if most:
        constraints = Constraints(max_dropped, max_p50, max_p99, confirm)
        load = _load_of({**wishes, "paced": True})
        report = most_sources(load, constraints, step, on_case=lambda case: said(_words_of(case)))
        code = _told(report, out, json_file)
        said(f"{held(report)} sources hold, for {max(confirm, wishes['seconds']):g} s")
        return code
    load, values = _load_of(wishes), dict(over)
    with _progress("configurations", len(combinations(load, values))) as advance:
        report = grid(load, values, out / "search.json", repeats=repeats, on_case=lambda case: advance(_words_of(case)))
    return _told(report, out, json_file)


@part.command()
@click.argument("clip", type=click.Path(path_type=Path))
@click.option(
    "--sessions", default=[7, 28, 56, 150], show_default=True, multiple=True, type=click.IntRange(1), help="Repeat it."
)
@click.option("--seconds", default=3.0, show_default=True, type=_SECONDS, help="In steady state, each.")
@click.option("--processes", default=4, show_default=True, type=click.IntRange(1), help="That share them.")
@click.option("--low-latency", is_flag=True, help="As for live sources: each picture as soon as it can be.")
@_DEVICE
@JSON_FILE
def decode(json_file: Path | None, **wishes: Any) -> int:
    """The GPU's decoder: pictures a second, its utilisation, CPU and memory, by number of sessions."""
    from daemon.bench.decode import DecodeOptions
    from daemon.bench.decode import decode as run_decode
    from daemon.bench.pages import decode_table
    from daemon.report import show, write_json

    result = run_decode(DecodeOptions(**wishes))
    show(decode_table(result))
    write_json(json_file, result)
    return 0


@part.command()
@click.argument("model", type=click.Path(path_type=Path))
@_LABELS
@_PRECISION
@_LEVEL
@_CACHE
@click.option("--max-batch", default=32, show_default=True, type=_BATCHES)
@click.option("--seconds", default=3.0, show_default=True, type=_SECONDS, help="In steady state.")
@_DEVICE
@JSON_FILE
def engine(json_file: Path | None, **wishes: Any) -> int:
    """The GPU's engine: images a second with nothing around it."""
    from daemon.bench.engine import EngineOptions
    from daemon.bench.engine import engine as run_engine
    from daemon.bench.pages import engine_table
    from daemon.report import show, write_json

    result = run_engine(EngineOptions(**wishes))
    show(engine_table(result))
    write_json(json_file, result)
    return 0


@part.command()
@click.argument("clip", required=False, type=click.Path(path_type=Path))
@click.option("--max-batch", type=_BATCHES, help="[default: 32, and 8 with CLIP]")
@click.option("--frames", type=click.IntRange(1), help="[default: 60000 of all sources, and 300 of CLIP]")
@click.option("--sources", default=150, show_default=True, type=click.IntRange(1), help="Without CLIP.")
@click.option("--lanes", default=2, show_default=True, type=_LANES, help="Without CLIP.")
@click.option("--boxes", default=10, show_default=True, type=click.IntRange(0), help="Of each frame, without CLIP.")
@_ENCODING
@_MODEL
@_LABELS
@_THREADS
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Turns of each side, with CLIP.")
@JSON_FILE
def python(clip: Path | None, max_batch: int | None, frames: int | None, json_file: Path | None, **wishes: Any) -> int:
    """What a frame costs besides being decoded and looked at. With CLIP: the CPU's lossless replay of it beside a bare
    onnxruntime loop over decoded frames, in turns."""
    from daemon.bench.efficiency import EfficiencyOptions, efficiency
    from daemon.bench.overhead import OverheadOptions, overhead
    from daemon.bench.pages import efficiency_table, overhead_table
    from daemon.report import show, write_json

    def some(*names: str) -> dict[str, Any]:
        return {name: wishes[name] for name in names}

    if clip is None:
        found = overhead(
            OverheadOptions(
                frames=frames or 60_000, max_batch=max_batch or 32, **some("sources", "lanes", "boxes", "encoding")
            )
        )
        show(overhead_table(found))
        write_json(json_file, found)
        return 0
    options = EfficiencyOptions(
        clip, frames=frames or 300, max_batch=max_batch or 8, **some("model", "labels", "threads", "rounds")
    )
    result = efficiency(options)
    show(efficiency_table(result))
    write_json(json_file, result)
    return 0


@bench.command()
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option("--least", default=2.0, show_default=True, type=click.FloatRange(min=0), help="Percent worth a word.")
@click.option("--iou", default=0.95, show_default=True, type=click.FloatRange(0, 1), help="Of boxes that are the same.")
@click.option("--agreement", default=1.0, show_default=True, type=click.FloatRange(0, 1), help="Share that must match.")
def compare(old: Path, new: Path, least: float, iou: float, agreement: float) -> int:
    """OLD and NEW: two reports (.json), metric by metric, or two recordings of --frames-out (.jsonl, .parquet), box by
    box. Exit code 1 if a metric is worse, or if boxes agree too little."""
    from daemon.bench.compare import compare_reports, too_few
    from daemon.bench.compare_frames import compare_frames
    from daemon.bench.pages import agreement_table, changes_table
    from daemon.bench.result import read
    from daemon.report import said, show

    recorded = [path.suffix in _FRAMES for path in (old, new)]
    if recorded[0] != recorded[1]:
        raise click.UsageError("give two reports (.json), or two recordings (.jsonl, .parquet)")
    if all(recorded):
        found = compare_frames(old, new, iou)
        show(agreement_table(found))
        return int(found.share < agreement)
    before, after = read(old), read(new)
    changes = compare_reports(before, after, least / 100)
    show(changes_table(changes))
    if reason := too_few(before, after):
        said(reason)
    return int(any(change.verdict == "worse" for change in changes))


@bench.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", type=OutputFolder(), default=Path("bench-results"), show_default=True)
def report(files: tuple[Path, ...], out: Path) -> int:
    """Markdown and HTML, anew, of FILES that `run` and `search` wrote."""
    from daemon.bench.result import read

    _check_pages(out)
    for found in [read(file) for file in files]:
        _told(found, out, None)
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


def _told(report: Report, out: Path | None, json_file: Path | None) -> int:
    """On the terminal, and in the files that were asked for."""
    from daemon.bench.pages import page_of, save
    from daemon.bench.result import write
    from daemon.report import said, show

    show(page_of(report))
    for path in save(report, out) if out else []:
        said(str(path))
    if json_file:
        write(json_file, report)
    return 0


def _words_of(case: Case) -> str:
    """A case in a line, as soon as it is known."""
    from daemon.bench.pages import words_of

    return words_of(case)


@contextmanager
def _progress(unit: str, total: int) -> Iterator[Callable[[str], None]]:
    """A bar with the time that is left; the function within says what is done, and moves it on. A single run has none:
    this process is the one that is measured."""
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

        def advance(words: str) -> None:
            if words:
                bar.console.print(words, highlight=False, markup=False, soft_wrap=True)
            bar.advance(task)

        yield advance
