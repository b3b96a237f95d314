"""The part of `lookout check` that is about models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from daemon.analytics.stages import AnalyticsStages
from daemon.classification.second_stage import check_wanted
from daemon.config.root import Config
from daemon.control.capacity import measure_detector
from daemon.control.kit import check_devices
from daemon.control.plan import options_of, with_classifiers
from daemon.control.reload import defaults_of
from daemon.pipeline.model_set import check_fit, planned_of
from daemon.pipeline.stages import filter_of
from daemon.redact import printable
from detectors.factory import availability, open_detector
from detectors.port import Detector, DetectorError, ModelInfo, Size
from detectors.semantics import by_origin

_LISTED = 6


def say(console: Console, text: str, style: str = "none") -> None:
    """In a line of its own; what a camera, a file or a name has put into it is no sign that a terminal obeys."""
    console.print(printable(text), style=style, highlight=False, soft_wrap=True, markup=False)


def _show_backends(console: Console) -> None:
    table = Table("backend", "available", "", title="Backends, best first", title_justify="left")
    for row in availability():
        table.add_row(row.backend, "yes" if row.available else "no", escape(row.reason))
    console.print(table)


def check_models(
    config: Config, classifiers: Mapping[str, ModelInfo], stack: ExitStack, console: Console
) -> dict[str, Detector]:
    """The opened models by name, closed with the stack; prints the reason and returns none if one cannot be used."""
    _show_backends(console)
    found: dict[str, Detector] = {}
    reserved = sum(other.memory_bytes for other in classifiers.values())
    for name in config.model_names:
        own = config.for_model(name)
        try:
            detector = open_detector(own.model.backend, options_of(own, reserved))
        except DetectorError as error:
            say(console, f"model {name}: {error}" if name else str(error), "red")
            return {}
        stack.callback(detector.close)
        reserved += detector.info.memory_bytes
        found[name] = detector
        for source in own.active:
            filter_of(source, detector.info.labels, defaults_of(own))
    infos = {name: detector.info for name, detector in found.items()}
    check_devices(infos)
    labels = {name: info.labels for name, info in infos.items()}
    AnalyticsStages.check(config, labels)
    for name, own_labels in labels.items():
        check_wanted(config.for_model(name), own_labels)
    check_fit(config, infos)
    for name, detector in found.items():
        _show_model(config.for_model(name), name, detector, console)
    planned = planned_of(infos)
    if planned.memory:
        console.print(_memory_table(with_classifiers(planned, classifiers), config))
    return found


def _show_model(config: Config, name: str, detector: Detector, console: Console) -> None:
    info = detector.info
    title = f"Model {name}, for {listed(row.id for row in config.active)}" if name else "Model"
    table = Table(title=title, title_justify="left", show_header=False)
    sizes = ", ".join(map(text_of, (info.input_size, *info.further_sizes)))
    for key, value in (
        ("model", f"{info.name} {info.digest}"),
        ("backend", _backend(config, info)),
        *(("nodes", f"{count} on {provider}") for provider, count in info.nodes),
        ("head", info.head),
        ("input", f"{sizes}, batches up to {info.max_batch}"),
        *(("facts", line) for line in by_origin(info.facts)),
        ("labels", f"{len(info.labels)}: {', '.join(info.labels[:8])}{' ...' if len(info.labels) > 8 else ''}"),
        *_of_server(detector),
        *(("note", note) for note in info.notes),
    ):
        table.add_row(key, escape(printable(value)))
    console.print(table)


def _backend(config: Config, info: ModelInfo) -> str:
    if info.device:
        return f"{info.backend} on {info.device}, {info.precision}"
    chosen = config.model.backend == "auto" and config.model.provider is None
    return f"{info.backend}, {info.precision}" + (" (chosen by auto)" if chosen else "")


def listed(ids: Iterable[str]) -> str:
    """Some of the ids, and how many more."""
    rows = [*ids]
    return ", ".join(rows[:_LISTED]) + (f" and {len(rows) - _LISTED} more" if len(rows) > _LISTED else "")


def text_of(size: Size) -> str:
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


def _memory_table(info: ModelInfo, config: Config) -> Table:
    limit = config.gpu.memory_limit_mib
    allowed = "no limit set" if limit is None else f"{limit} MiB allowed"
    title = f"GPU memory planned for {info.lanes} lanes and batches up to {info.max_batch} ({allowed})"
    table = Table("", "MiB", title=title, title_justify="left", show_footer=True)
    for name, size in info.memory:
        table.add_row(name, f"{size / (1 << 20):.0f}")
    table.columns[0].footer, table.columns[1].footer = "in all", f"{info.memory_bytes / (1 << 20):.0f}"
    return table
