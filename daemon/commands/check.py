"""`lookout check`: tries the first steps of `run` and reports the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from daemon.analytics.rate_for_tracking import note_on_pace
from daemon.analytics.stages import AnalyticsStages
from daemon.classification.open_models import open_classifiers
from daemon.classification.second_stage import check_wanted
from daemon.commands.drawn_rules import draw_rules
from daemon.commands.obstacles import obstacles
from daemon.config.root import Config
from daemon.config.sources import SourceConfig
from daemon.control.admission import max_min_rate
from daemon.control.capacity import (
    Demand,
    MachineLimits,
    PictureCosts,
    bottleneck,
    cores,
    loads,
    measure_detector,
    measure_sizes,
)
from daemon.control.decoders import decoder_backend_of
from daemon.control.plan import PROCESS_BYTES, classifier_options, options_of, planned_processes, with_classifiers
from daemon.control.reload import defaults_of
from daemon.errors import DecodeError, SourceError
from daemon.monitoring.probes import bus_bytes_per_s, open_gpu_probe
from daemon.pipeline.stages import filter_of
from daemon.pipeline.views import check_views, placed, view_of
from daemon.redact import printable
from daemon.sources.decode import NVDEC, DecoderBackend, DecoderPool, NoHardwareDecoder
from daemon.sources.factory import make_source
from daemon.sources.port import Reader, next_picture
from daemon.system.gpus import name_visible_gpus
from detectors.factory import availability, gpus, open_classifier, open_detector
from detectors.port import Detector, DetectorError, Image, ModelInfo, Region, Size
from detectors.semantics import by_origin
from lookoutd.messages import VideoFormat

_MAX_DECODE_ERRORS = 100
_PICTURES = 10  # to measure the decoding time
_SLOW_CAMERA_S = 1.0  # limit of that measurement
_RATE_S = 5.0  # limit for the rate of a source that claims none, or an impossible one


@dataclass(frozen=True)
class Opened:
    """A source that was opened once.

    Attributes:
        first_frame_s: from connecting to the first picture.
        decode_s: CPU seconds per picture, median of the first few.
        image: the first picture.
        problem: None if the source works.
    """

    source: SourceConfig
    format: VideoFormat | None = None
    first_frame_s: float | None = None
    decode_s: float = 0.0
    image: Image | None = None
    problem: str | None = None


def check(config: Config, *, ports: bool = True, draw: Path | None = None) -> int:
    """Print the result of all checks; the exit code is 0 only if all succeed.

    Args:
        ports: also try to bind the endpoints; a running daemon with this configuration holds them.
        draw: folder for a picture of each source with its rules.
    """
    console = Console()
    if gpus():
        name_visible_gpus()  # before a GPU is used
    with ExitStack() as stack:
        problems = [*obstacles(config, ports=ports)]
        for problem in problems:
            _print(console, problem, "red")
        classifiers = _try_classifiers(config)
        detector = _check_model(config, classifiers.opened, console)
        if detector:
            stack.callback(detector.close)
            problems += _show_classifiers(classifiers, console)
        planned = with_classifiers(detector.info, classifiers.opened) if detector else None
        backend = decoder_backend_of(config, planned) if planned else NoHardwareDecoder("the model cannot be opened")
        hardware = backend.open()
        stack.callback(hardware.close)
        with ThreadPoolExecutor(max_workers=16, thread_name_prefix="check") as pool:
            opened = list(pool.map(lambda source: open_once(source, hardware), config.active))
        console.print(_source_table(opened))
        for row in opened:
            for note in row.format.notes if row.format else ():
                _print(console, f"{row.source.id}: {note}", "yellow")
            if row.problem:
                line = f"{row.source.id}: {row.problem}"
                _print(console, line, "red")
        rates = {row.source.id: _wanted_fps(row) for row in opened}
        if detector and planned:
            rates |= _check_load(config, detector, planned, backend, opened, console)
        for note in _notes_on_pace(config, rates):
            _print(console, note, "yellow")
        if detector and draw is not None:
            pictures = [(row.source, row.image) for row in opened if row.image is not None]
            for path in draw_rules(draw, pictures, detector):
                _print(console, f"drawn: {path}")
        failed = bool(problems) or any(row.problem for row in opened)
        opened.clear()  # pictures on the GPU, before their memory is released
    return 0 if detector and not failed else 2


def _print(console: Console, text: str, style: str = "none") -> None:
    """In a line of its own; what a camera, a file or a name has put into it is no sign that a terminal obeys."""
    console.print(printable(text), style=style, highlight=False, soft_wrap=True, markup=False)


def open_once(config: SourceConfig, hardware: DecoderPool) -> Opened:
    """Connect, read a few pictures, disconnect."""
    started = monotonic()
    try:
        with closing(make_source(config, hardware).open()) as reader:
            image, decode_s = _picture(reader)
            first_frame_s = monotonic() - started
            times = [decode_s]
            while (left := _PICTURES - len(times)) > 0 or reader.format.fps is None:
                if monotonic() - started - first_frame_s >= (_SLOW_CAMERA_S if left > 0 else _RATE_S):
                    break
                with suppress(DecodeError):
                    times.append(_picture(reader, at_end=decode_s)[1])
            return Opened(config, reader.format, first_frame_s, median(times), image)
    except SourceError as error:
        return Opened(config, problem=str(error))


def _picture(reader: Reader, at_end: float | None = None) -> tuple[Image | None, float]:
    """The next decodable picture and the seconds it took; at the end of a recording `at_end`, if given."""
    for _ in range(_MAX_DECODE_ERRORS):
        try:
            picture = next_picture(reader)
            if picture is None:
                if at_end is None:
                    raise SourceError("it has no picture")
                return None, at_end
            began = perf_counter()
            image = picture.load()
            return image, picture.decode / 1e9 + perf_counter() - began
        except DecodeError as error:
            last = str(error)
    raise SourceError(f"none of the first {_MAX_DECODE_ERRORS} pictures could be decoded: {last}")


def _check_load(
    config: Config,
    detector: Detector,
    planned: ModelInfo,
    backend: DecoderBackend | NoHardwareDecoder,
    opened: list[Opened],
    console: Console,
) -> dict[str, float]:
    """Compare the demand of the sources with the machine's limits.

    Args:
        planned: the detector's model, with the memory of all models in its plan.

    Returns:
        The frames a second that will be analysed, of each live source.
    """
    asking = [row for row in opened if row.image is not None and row.format is not None and row.format.fps]
    live = [row for row in asking if not row.source.is_patient]
    if not live:
        return {}
    on_gpu = detector.info.gpu is not None
    costs = measure_sizes(detector, [row.image for row in live if row.image is not None])
    demands = [_demand(row, backend, costs, on_gpu=on_gpu) for row in live]
    limits = MachineLimits(
        images_per_s=costs.rates[costs.own],
        cores=cores(),
        memory=_gpu_memory(config, planned) if on_gpu else None,
        bus=bus_bytes_per_s(detector.info.gpu) if detector.info.gpu is not None else None,
        sessions=backend.sessions,
    )
    rows = loads(demands, limits)
    title = "Load; detector measured just now" if on_gpu else "Load, measured just now"
    table = Table("", "asked for", "can do", "", "full", title=title, title_justify="left")
    for load in rows:
        table.add_row(load.name, f"{load.needed:.1f}", f"{load.limit:.1f}", load.unit, f"{load.share:.0%}")
    console.print(table)
    for size in detector.info.further_sizes:
        line = f"at {_text(size)} the detector does {costs.rates[size]:.1f} pictures/s: one counts as {costs(size):.3g}"
        console.print(f"{line} of {_text(costs.own)}", highlight=False, soft_wrap=True)
    console.print(bottleneck(rows, len(live)), highlight=False, soft_wrap=True)
    if len(live) < len(opened):
        console.print(
            f"not counted: {len(opened) - len(live)} sources of unknown rate, or that play as fast as possible"
        )
    wanted = [demand.wanted_fps for demand in demands]
    level = max_min_rate(wanted, limits.images_per_s, [demand.pictures for demand in demands]) or max(wanted)
    return {row.source.id: min(level, fps) for row, fps in zip(live, wanted)}


def _wanted_fps(opened: Opened) -> float:
    """Frames a second that are to be analysed; 0 if unknown."""
    rates = [fps for fps in (opened.format.fps if opened.format else None, opened.source.max_fps) if fps]
    return min(rates, default=0.0)


def _notes_on_pace(config: Config, rates: Mapping[str, float]) -> Iterator[str]:
    """Sources of which too few frames will be analysed to track objects."""
    for source in config.active:
        own, fps = config.tracking_of(source), rates.get(source.id)
        if own and fps and (note := note_on_pace(fps, own.timeout_s)):
            yield f"{source.id}: {note}"


def _demand(row: Opened, backend: DecoderBackend | NoHardwareDecoder, costs: PictureCosts, *, on_gpu: bool) -> Demand:
    """The demand of an opened source."""
    form = row.format
    if form is None:
        return Demand(0.0, 0.0, 0.0)
    fps, wanted = form.fps or 0.0, _wanted_fps(row)
    view = view_of(row.source)
    regions = placed(view, form.width, form.height).regions if view else (Region(0, 0, form.width, form.height),)
    pictures = len(regions) * costs(row.source.model_size or costs.own)
    if form.decoder != NVDEC:
        crossing = sum(region.width * region.height * 3 for region in regions) if on_gpu else 0
        return Demand(fps, wanted, row.decode_s, frame_bytes=crossing, pictures=pictures)
    live = make_source(row.source).live
    decoder, memory = backend.estimate(form.codec, form.width, form.height, fps, low_latency=live)
    return Demand(fps, wanted, 0.0, decoder=decoder, memory=memory, pictures=pictures)


def _gpu_memory(config: Config, model: ModelInfo) -> tuple[int, int] | None:
    """Bytes of GPU memory that may be used, and those planned for models and capture processes."""
    fixed = model.memory_bytes + planned_processes(config) * PROCESS_BYTES
    if config.gpu.memory_limit_mib is not None:
        return config.gpu.memory_limit_mib << 20, fixed
    with closing(open_gpu_probe()) as probe:
        gpus = probe.read() or []
    total = gpus[model.gpu].memory_total_bytes if model.gpu is not None and model.gpu < len(gpus) else None
    return (total, fixed) if total else None


def _check_model(config: Config, classifiers: Mapping[str, ModelInfo], console: Console) -> Detector | None:
    """The opened model; prints the reason and returns None if it cannot be used."""
    table = Table("backend", "available", "", title="Backends, best first", title_justify="left")
    for row in availability():
        table.add_row(row.backend, "yes" if row.available else "no", escape(row.reason))
    console.print(table)
    with ExitStack() as undo:
        try:
            reserved = sum(other.memory_bytes for other in classifiers.values())
            detector = open_detector(config.model.backend, options_of(config, reserved))
        except DetectorError as error:
            _print(console, str(error), "red")
            return None
        undo.callback(detector.close)
        for source in config.active:
            filter_of(source, detector.info.labels, defaults_of(config))
        AnalyticsStages.check(config, detector.info.labels)
        check_wanted(config, detector.info.labels)
        check_views(config, detector.info)
        undo.pop_all()
    info = detector.info
    table = Table(title="Model", title_justify="left", show_header=False)
    sizes = ", ".join(map(_text, (info.input_size, *info.further_sizes)))
    for name, value in (
        ("model", f"{info.name} {info.digest}"),
        ("backend", _backend(config, info)),
        *(("nodes", f"{count} on {name}") for name, count in info.nodes),
        ("head", info.head),
        ("input", f"{sizes}, batches up to {info.max_batch}"),
        *(("facts", line) for line in by_origin(info.facts)),
        ("labels", f"{len(info.labels)}: {', '.join(info.labels[:8])}{' ...' if len(info.labels) > 8 else ''}"),
        *_of_server(detector),
        *(("note", note) for note in info.notes),
    ):
        table.add_row(name, escape(printable(value)))
    console.print(table)
    if info.memory:
        console.print(_memory_table(with_classifiers(info, classifiers), config))
    return detector


def _backend(config: Config, info: ModelInfo) -> str:
    if info.device:
        return f"{info.backend} on {info.device}, {info.precision}"
    chosen = config.model.backend == "auto" and config.model.provider is None
    return f"{info.backend}, {info.precision}" + (" (chosen by auto)" if chosen else "")


def _text(size: Size) -> str:
    return f"{size[0]}x{size[1]}"


def _of_server(detector: Detector) -> list[tuple[str, str]]:
    """How pictures come to the model's server, and how many it does; empty without a server."""
    info = detector.info
    if not info.transport:
        return []
    try:
        rate = measure_detector(detector, [detector.sample(1280, 720)])
    except DetectorError as error:
        return [("transport", info.transport), ("rate", f"not measured: {error}")]
    batches = f"batches of {info.max_batch} from {info.lanes} lanes"
    return [("transport", info.transport), ("rate", f"{rate:.1f} pictures of 1280x720 a second, in {batches}")]


@dataclass(frozen=True)
class _Classifiers:
    """Attributes:
    opened: those that can be used, by name; closed again.
    problems: why the others cannot.
    """

    opened: Mapping[str, ModelInfo]
    problems: Sequence[str]


def _try_classifiers(config: Config) -> _Classifiers:
    """Open each classifier once, with the memory that those before it leave."""
    opened: dict[str, ModelInfo] = {}
    problems = []
    for row in config.classifiers:
        options = replace(
            classifier_options(config, row), reserved=sum(other.memory_bytes for other in opened.values())
        )
        try:
            (detector,) = open_classifiers(open_classifier, config.model.backend, [(row.name, options)])
        except DetectorError as error:
            problems.append(str(error))
            continue
        opened[row.name] = detector.info
        detector.close()
    return _Classifiers(opened, problems)


def _show_classifiers(classifiers: _Classifiers, console: Console) -> Sequence[str]:
    """Print them; returns the problems."""
    for problem in classifiers.problems:
        _print(console, problem, "red")
    for name, info in classifiers.opened.items():
        line = f"classifier {name}: {info.name} {info.digest}, {info.precision}, {len(info.labels)} labels"
        _print(console, line)
    return classifiers.problems


def _memory_table(info: ModelInfo, config: Config) -> Table:
    limit = config.gpu.memory_limit_mib
    allowed = "no limit set" if limit is None else f"{limit} MiB allowed"
    title = f"GPU memory planned for {info.lanes} lanes and batches up to {info.max_batch} ({allowed})"
    table = Table("", "MiB", title=title, title_justify="left", show_footer=True)
    for name, size in info.memory:
        table.add_row(name, f"{size / (1 << 20):.0f}")
    table.columns[0].footer, table.columns[1].footer = "in all", f"{info.memory_bytes / (1 << 20):.0f}"
    return table


def _aspect_of(format: VideoFormat) -> str:
    """The pixel aspect, if pixels are not square."""
    return "" if format.pixel_aspect == 1 else f", pixels {format.pixel_aspect:g}:1"


def _source_table(opened: list[Opened]) -> Table:
    table = Table("source", "", "codec", "size", "fps", "decoder", "first frame", title="Sources", title_justify="left")
    for row in opened:
        if row.format is None:
            table.add_row(row.source.id, "[red]failed[/red]")
            continue
        fps = "?" if row.format.fps is None else f"{row.format.fps:.2f}"
        size = f"{row.format.width}x{row.format.height}" + _aspect_of(row.format)
        first = f"{(row.first_frame_s or 0) * 1000:.0f} ms"
        table.add_row(row.source.id, "[green]ok[/green]", row.format.codec, size, fps, row.format.decoder, first)
    return table
