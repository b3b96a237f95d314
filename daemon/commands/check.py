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
from rich.table import Table

from daemon.analytics.rate_for_tracking import note_on_pace
from daemon.classification.open_models import open_classifiers
from daemon.commands.drawn_rules import draw_rules
from daemon.commands.model_checks import check_models, say, text_of
from daemon.commands.obstacles import obstacles
from daemon.commands.store_checks import check_stores
from daemon.config.root import Config
from daemon.config.sources import SourceConfig
from daemon.control.admission import max_min_rate
from daemon.control.capacity import (
    Demand,
    MachineLimits,
    PictureCosts,
    SourceCosts,
    bottleneck,
    cores,
    loads,
    measure_sizes,
)
from daemon.control.decoders import decoder_backend_of
from daemon.control.plan import PROCESS_BYTES, classifier_options, planned_processes, with_classifiers
from daemon.errors import DecodeError, SourceError
from daemon.monitoring.probes import bus_bytes_per_s, open_gpu_probe
from daemon.pipeline.model_set import planned_of
from daemon.pipeline.views import placed, view_of
from daemon.sources.decode import NVDEC, DecoderBackend, DecoderPool, NoHardwareDecoder
from daemon.sources.factory import make_source
from daemon.sources.port import Reader, next_picture
from daemon.system.gpus import name_visible_gpus
from detectors.factory import gpus, open_classifier
from detectors.port import Detector, DetectorError, Image, ModelInfo, Region
from lookout.messages import VideoFormat

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


def check(
    config: Config, *, ports: bool = True, page: bool = False, bridge: bool = False, draw: Path | None = None
) -> int:
    """Print the result of all checks; the exit code is 0 only if all succeed.

    Args:
        ports: also try to bind the endpoints; a running daemon with this configuration holds them.
        page: also try what the page needs beside the daemon.
        bridge: likewise.
        draw: folder for a picture of each source with its rules.
    """
    console = Console()
    if gpus():
        name_visible_gpus()  # before a GPU is used
    with ExitStack() as stack:
        problems = [*obstacles(config, ports=ports, page=page, bridge=bridge)]
        for problem in problems:
            say(console, problem, "red")
        classifiers = _try_classifiers(config)
        detectors = check_models(config, classifiers.opened, stack, console)
        if detectors:
            problems += _show_classifiers(classifiers, console)
        infos = {name: detector.info for name, detector in detectors.items()}
        planned = with_classifiers(planned_of(infos), classifiers.opened) if infos else None
        backend = decoder_backend_of(config, planned) if planned else NoHardwareDecoder("the model cannot be opened")
        hardware = backend.open()
        stack.callback(hardware.close)
        with ThreadPoolExecutor(max_workers=16, thread_name_prefix="check") as pool:
            opened = list(pool.map(lambda source: open_once(source, hardware), config.active))
        console.print(_source_table(opened))
        for row in opened:
            for note in row.format.notes if row.format else ():
                say(console, f"{row.source.id}: {note}", "yellow")
            if row.problem:
                line = f"{row.source.id}: {row.problem}"
                say(console, line, "red")
        rates = {row.source.id: _wanted_fps(row) for row in opened}
        codecs = {row.source.id: row.format.codec for row in opened if row.format}
        problems += check_stores(config, codecs, console, alone=ports)
        if planned:
            rates |= _check_load(config, detectors, planned, backend, opened, console)
        for note in _notes_on_pace(config, rates):
            say(console, note, "yellow")
        if detectors and draw is not None:
            (detector, *_) = detectors.values()
            pictures = [(row.source, row.image) for row in opened if row.image is not None]
            for path in draw_rules(draw, pictures, detector):
                say(console, f"drawn: {path}")
        failed = bool(problems) or any(row.problem for row in opened)
        opened.clear()  # pictures on the GPU, before their memory is released
    return 0 if detectors and not failed else 2


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
    detectors: Mapping[str, Detector],
    planned: ModelInfo,
    backend: DecoderBackend | NoHardwareDecoder,
    opened: list[Opened],
    console: Console,
) -> dict[str, float]:
    """Compare the demand of the sources with the machine's limits.

    Args:
        detectors: by model.
        planned: the first model, with the memory of all models in its plan.

    Returns:
        The frames a second that will be analysed, of each live source.
    """
    asking = [row for row in opened if row.image is not None and row.format is not None and row.format.fps]
    live = [row for row in asking if not row.source.is_patient]
    if not live:
        return {}
    on_gpu = planned.gpu is not None
    images = [row.image for row in live if row.image is not None]
    measured = {name: measure_sizes(detector, images) for name, detector in detectors.items()}
    models = {source.id: config.models_of(source) for source in config.active}
    costs = SourceCosts(measured, models.__getitem__)
    demands = [_demand(row, backend, costs, on_gpu=on_gpu) for row in live]
    limits = MachineLimits(
        images_per_s=costs.rate,
        cores=cores(),
        memory=_gpu_memory(config, planned) if on_gpu else None,
        bus=bus_bytes_per_s(planned.gpu) if planned.gpu is not None else None,
        sessions=backend.sessions,
    )
    rows = loads(demands, limits)
    title = "Load; detector measured just now" if on_gpu else "Load, measured just now"
    table = Table("", "asked for", "can do", "", "full", title=title, title_justify="left")
    for load in rows:
        table.add_row(load.name, f"{load.needed:.1f}", f"{load.limit:.1f}", load.unit, f"{load.share:.0%}")
    console.print(table)
    for name, one in measured.items():
        _show_rates(name, one, costs, console)
    console.print(bottleneck(rows, len(live)), highlight=False, soft_wrap=True)
    if len(live) < len(opened):
        console.print(
            f"not counted: {len(opened) - len(live)} sources of unknown rate, or that play as fast as possible"
        )
    wanted = [demand.wanted_fps for demand in demands]
    level = max_min_rate(wanted, limits.images_per_s, [demand.pictures for demand in demands]) or max(wanted)
    return {row.source.id: min(level, fps) for row, fps in zip(live, wanted)}


def _show_rates(model: str, own: PictureCosts, costs: SourceCosts, console: Console) -> None:
    """The cost of a picture at each input size of a model, and, of several models, the rate of each."""
    for size in own.rates:
        if size != own.own:
            does = f"the detector{f' {model}' if model else ''} does {own.rates[size]:.1f} pictures/s"
            line = f"at {text_of(size)} {does}: one counts as {own(size):.3g} of {text_of(own.own)}"
            console.print(line, highlight=False, soft_wrap=True)
    if len(costs.models) > 1:
        rate = own.rates[own.own]
        line = f"model {model} does {rate:.1f} pictures/s alone: one counts as {costs.rate / rate:.3g}"
        console.print(line, highlight=False, soft_wrap=True)


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


def _demand(row: Opened, backend: DecoderBackend | NoHardwareDecoder, costs: SourceCosts, *, on_gpu: bool) -> Demand:
    """The demand of an opened source."""
    form = row.format
    if form is None:
        return Demand(0.0, 0.0, 0.0)
    fps, wanted = form.fps or 0.0, _wanted_fps(row)
    view = view_of(row.source)
    regions = placed(view, form.width, form.height).regions if view else (Region(0, 0, form.width, form.height),)
    pictures = len(regions) * costs(row.source.id, row.source.model_size)
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
        say(console, problem, "red")
    for name, info in classifiers.opened.items():
        line = f"classifier {name}: {info.name} {info.digest}, {info.precision}, {len(info.labels)} labels"
        say(console, line)
    return classifiers.problems


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
