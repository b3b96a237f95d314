"""Derives the detector's options and the decoders' resources from the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from daemon.config.sources import AvConfig, SourceConfig
from daemon.control.reload import least_confidence, sizes_of
from daemon.pipeline.board_rules import PATIENT_DEPTH
from detectors.port import ModelInfo, Options, PostprocessParams

if TYPE_CHECKING:
    from daemon.config.model import ClassifierConfig
    from daemon.config.root import Config

PROCESS_BYTES = 560 << 20  # of the GPU for each further process; measured on one H200
_MAX_BOXES = 1024  # boxes a picture
_SOURCES_PER_PROCESS = 16
_CPU_SOURCES_PER_PROCESS = 8  # sources that the CPU decodes
_MAX_PROCESSES = 4


def options_of(config: Config, reserved: int = 0) -> Options:
    """The detector's options. Its threshold is the lowest of all sources and trackers. It gives more boxes than a
    source publishes, because a source may want some labels only.

    Args:
        reserved: bytes of GPU memory planned for classifiers.
    """
    model = config.model
    return Options(
        path=model.path,
        head=model.head,
        labels=model.labels,
        input_size=model.input_size,
        further_sizes=tuple(sorted(sizes_of(config))),
        wanted=PostprocessParams(least_confidence(config), model.iou, max(_MAX_BOXES, model.max_detections)),
        max_batch=model.max_batch,
        threads=model.threads,
        precision=model.precision,
        builder_level=model.builder_level,
        cache=model.cache,
        lanes=model.lanes or config.lanes,
        device=config.gpu.device,
        memory_limit=_models_memory(config),
        reserved=reserved,
        frame_size=config.gpu.frame_size,
        transport=model.transport,
        request_timeout_s=model.request_timeout_s,
        semantics=model.semantics,
        provider=model.provider,
        provider_device=model.provider_device,
    )


def classifier_options(config: Config, row: ClassifierConfig) -> Options:
    """The options of a classifier. It is opened as one, whatever else its file may look like."""
    width, height = config.gpu.frame_size
    return Options(
        path=row.path,
        head="classify",
        labels=row.labels,
        wanted=PostprocessParams(confidence=0.0, max_detections=1),
        max_batch=row.max_batch,
        threads=row.threads,
        precision=row.precision,
        builder_level=config.model.builder_level,
        cache=config.model.cache,
        device=config.gpu.device,
        memory_limit=_models_memory(config),
        parts=row.max_pending,
        frame_size=(max(1, width // 2), max(1, height // 2)),
        fit=row.fit,
        transport=config.model.transport,
        request_timeout_s=config.model.request_timeout_s,
        semantics=row.semantics,
        provider=config.model.provider,
        provider_device=config.model.provider_device,
    )


def with_classifiers(model: ModelInfo, classifiers: Mapping[str, ModelInfo]) -> ModelInfo:
    """A model with the memory of the classifiers beside it in its plan, a row for each name."""
    rows = ((f"classifier {name}", info.memory_bytes) for name, info in classifiers.items())
    return replace(model, memory=(*model.memory, *(row for row in rows if row[1])))


def decoding_memory(config: Config, model: ModelInfo) -> int | None:
    """Bytes of the GPU for all decoders, None for no limit. See `with_classifiers`."""
    limit = config.gpu.memory_limit_mib
    if limit is None:
        return None
    taken = model.memory_bytes + planned_processes(config) * PROCESS_BYTES
    return max(0, (limit << 20) - taken)


def processes_of(config: Config, sources: int, *, on_gpu: bool) -> int:
    """The number of capture processes for a number of sources with packets; 0 to capture in this process.

    Args:
        on_gpu: the GPU decodes.
    """
    if config.capture_processes == "auto":
        return min(_MAX_PROCESSES, -(-sources // (_SOURCES_PER_PROCESS if on_gpu else _CPU_SOURCES_PER_PROCESS)))
    return min(config.capture_processes, sources)


def planned_processes(config: Config) -> int:
    """The number of capture processes for the configured sources, or those of a fleet, if the GPU decodes."""
    if config.capture_processes == "auto":
        if config.fleet.coordinator is not None:  # its sources come later
            return _MAX_PROCESSES
        return processes_of(config, len(gpu_sources(config)), on_gpu=True)
    return processes_of(config, len(remote_sources(config.active)), on_gpu=True)


def separates_rules(config: Config) -> bool:
    """Whether rules have a process of their own. Pictures of events need the frame that a lane has in hand."""
    if config.events.own_process == "auto":
        return planned_processes(config) > 1 and config.events.snapshots is None
    return config.events.own_process


def remote_sources(sources: Sequence[SourceConfig]) -> list[SourceConfig]:
    """The sources that capture processes take, if there are any: those with packets to decode."""
    return [source for source in sources if isinstance(source, AvConfig)]


def surfaces_of(config: Config) -> int:
    """Pictures of one source that may be in use at once: on the board and in a lane's batch of each of its models, in
    the capture thread, and between processes."""
    models = max((len(config.models_of(source)) for source in config.active), default=1)
    if config.capture_processes != 0:
        return 3 + 2 * models if config.board.mode == "live" else config.board.depth + 2
    patient = PATIENT_DEPTH if any(source.is_patient for source in config.active) else 1
    waiting = patient if config.board.mode == "live" else config.board.depth
    batch = max(config.for_model(name).model.max_batch for name in config.model_names)
    return models * (waiting + min(waiting, batch)) + 2


def _models_memory(config: Config) -> int | None:
    """Bytes of the limit for all models: decoding gets up to three quarters, and half of it in a fleet."""
    limit = config.gpu.memory_limit_mib
    if limit is None:
        return None
    if config.fleet.coordinator is not None:  # its sources come later
        return (limit << 20) // 2
    from daemon.sources.nvdec.costs import decoder_bytes

    needed = len(gpu_sources(config)) * decoder_bytes("hevc", *config.gpu.frame_size, surfaces_of(config))
    needed += planned_processes(config) * PROCESS_BYTES
    return (limit << 20) - min(needed, (limit << 20) * 3 // 4)


def gpu_sources(config: Config) -> list[AvConfig]:
    """The sources that use the GPU's decoder."""
    return [source for source in config.active if isinstance(source, AvConfig) and source.wants_gpu]
