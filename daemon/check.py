"""`lookout check`: everything `run` would do first, tried once and told."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from time import monotonic

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from daemon.app import options_of
from daemon.config import Config, SourceConfig
from daemon.errors import DecodeError, SourceError
from daemon.lane import keep_of
from daemon.messages import VideoFormat
from daemon.sources.factory import make_source
from daemon.sources.port import Reader
from detectors.factory import availability, open_detector
from detectors.port import DetectorError, ModelInfo

_MOST_ERRORS = 100


@dataclass(frozen=True)
class Opened:
    """One source, opened once.

    Attributes:
        first_frame_s: from connecting to the first picture in hand.
        problem: None if there is none.
    """

    source: SourceConfig
    format: VideoFormat | None = None
    first_frame_s: float | None = None
    problem: str | None = None


def check(config: Config) -> int:
    """Print what would happen; the exit code is 0 only if all of it would go well."""
    console = Console()
    model_is_fine = _check_model(config, console)
    with ThreadPoolExecutor(max_workers=16, thread_name_prefix="check") as pool:
        opened = list(pool.map(open_once, config.active))
    console.print(_source_table(opened))
    for row in opened:
        if row.problem:
            console.print(f"{row.source.id}: {row.problem}", style="red", highlight=False, soft_wrap=True, markup=False)
    return 0 if model_is_fine and not any(row.problem for row in opened) else 2


def open_once(config: SourceConfig) -> Opened:
    """Connect, read one picture, disconnect."""
    started = monotonic()
    try:
        with closing(make_source(config).open()) as reader:
            _first_picture(reader)
            return Opened(config, reader.format, monotonic() - started)
    except SourceError as error:
        return Opened(config, problem=str(error))


def _first_picture(reader: Reader) -> None:
    for _ in range(_MOST_ERRORS):
        try:
            picture = reader.read()
            if picture is None:
                raise SourceError("it holds no picture")
            picture.load()
            return
        except DecodeError as error:
            last = str(error)
    raise SourceError(f"none of the first {_MOST_ERRORS} pictures could be decoded: {last}")


def _check_model(config: Config, console: Console) -> bool:
    table = Table("backend", "available", "", title="Backends, best first", title_justify="left")
    for row in availability():
        table.add_row(row.backend, "yes" if row.available else "no", escape(row.reason))
    console.print(table)
    try:
        detector = open_detector(config.model.backend, options_of(config))
        with closing(detector):
            for source in config.active:
                keep_of(source, detector.info.labels, config.model.confidence)
            info = detector.info
    except DetectorError as error:
        console.print(str(error), style="red", highlight=False, soft_wrap=True, markup=False)
        return False
    table = Table(title="Model", title_justify="left", show_header=False)
    size = f"{info.input_size[0]}x{info.input_size[1]}"
    for name, value in (
        ("model", f"{info.name} {info.digest}"),
        (
            "backend",
            f"{info.backend}, {info.precision}" + (" (chosen by auto)" if config.model.backend == "auto" else ""),
        ),
        ("head", info.head),
        ("input", f"{size}, batches up to {info.max_batch}"),
        ("labels", f"{len(info.labels)}: {', '.join(info.labels[:8])}{' ...' if len(info.labels) > 8 else ''}"),
        *(("note", note) for note in info.notes),
    ):
        table.add_row(name, value)
    console.print(table)
    if info.memory:
        console.print(_memory_table(info, config))
    return True


def _memory_table(info: ModelInfo, config: Config) -> Table:
    limit = config.gpu.memory_limit_mib
    allowed = "no limit set" if limit is None else f"{limit} MiB allowed"
    title = f"GPU memory planned for {info.lanes} lanes and batches up to {info.max_batch} ({allowed})"
    table = Table("", "MiB", title=title, title_justify="left", show_footer=True)
    for name, size in info.memory:
        table.add_row(name, f"{size / (1 << 20):.0f}")
    table.columns[0].footer, table.columns[1].footer = "in all", f"{sum(dict(info.memory).values()) / (1 << 20):.0f}"
    return table


def _source_table(opened: list[Opened]) -> Table:
    table = Table("source", "", "codec", "size", "fps", "decoder", "first frame", title="Sources", title_justify="left")
    for row in opened:
        if row.format is None:
            table.add_row(row.source.id, "[red]failed[/red]")
            continue
        fps = "?" if row.format.fps is None else f"{row.format.fps:.2f}"
        size = f"{row.format.width}x{row.format.height}"
        first = f"{(row.first_frame_s or 0) * 1000:.0f} ms"
        table.add_row(row.source.id, "[green]ok[/green]", row.format.codec, size, fps, row.format.decoder, first)
    return table
