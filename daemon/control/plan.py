"""From the configuration to what the detector and the decoders get of the GPU."""

from __future__ import annotations

from collections.abc import Sequence

from daemon.config import AvConfig, Config, SourceConfig
from daemon.errors import ConfigError
from daemon.pipeline.board import PATIENT_DEPTH
from daemon.sources.decode import DecoderBackend, NoHardwareDecoder
from daemon.sources.factory import probe_decoder
from daemon.sources.nvdec.costs import decoder_bytes
from detectors.port import ModelInfo, Options, PostprocessParams

PROCESS_BYTES = 560 << 20  # of the GPU, that the driver takes for each further process; measured on one H200
_ROOM = 1024  # boxes a picture
_SOURCES_PER_PROCESS = 16
_ON_CPU = 8  # of those that the CPU decodes
_MOST_PROCESSES = 4


def options_of(config: Config) -> Options:
    """What the detector needs to know. Its threshold is the lowest that any source wants; and it gives more boxes than
    a source gets, which may want some labels only."""
    model = config.model
    wishes = [source.confidence for source in config.active if source.confidence is not None]
    return Options(
        path=model.path,
        head=model.head,
        labels=model.labels,
        input_size=model.input_size,
        wanted=PostprocessParams(min([model.confidence, *wishes]), model.iou, max(_ROOM, model.max_detections)),
        max_batch=model.max_batch,
        threads=model.threads,
        precision=model.precision,
        builder_level=model.builder_level,
        cache=model.cache,
        lanes=config.lanes,
        device=config.gpu.device,
        memory_limit=_detectors_memory(config),
        frame_size=config.gpu.frame_size,
    )


def hardware_of(config: Config, model: ModelInfo) -> DecoderBackend | NoHardwareDecoder:
    """What decodes on the GPU, for lanes that take its pictures, whether a source asks for it yet or not.

    Raises:
        ConfigError: a source asks for it and it cannot be had.
    """
    if model.gpu is None:
        found: DecoderBackend | NoHardwareDecoder = NoHardwareDecoder(
            f"the {model.backend} backend reads pictures in host memory"
        )
    else:
        found = probe_decoder(model.gpu, surfaces_of(config), decoding_memory(config, model))
    if isinstance(found, NoHardwareDecoder):
        for source in _asking(config):
            if source.decode == "nvdec":
                raise ConfigError(f"sources, id {source.id}: decode: nvdec cannot be had: {found.reason}")
    return found


def decoding_memory(config: Config, model: ModelInfo) -> int | None:
    """Bytes of the GPU that all decoders may take, None for any."""
    limit = config.gpu.memory_limit_mib
    if limit is None:
        return None
    taken = sum(dict(model.memory).values()) + processes_wished(config) * PROCESS_BYTES
    return max(0, (limit << 20) - taken)


def processes_of(config: Config, sources: int, *, on_gpu: bool) -> int:
    """How many processes capture so many sources with packets; 0 where this one does.

    Args:
        on_gpu: the GPU decodes.
    """
    if config.capture_processes == "auto":
        return min(_MOST_PROCESSES, -(-sources // (_SOURCES_PER_PROCESS if on_gpu else _ON_CPU)))
    return min(config.capture_processes, sources)


def processes_wished(config: Config) -> int:
    """For the sources there are, if the GPU decodes."""
    if config.capture_processes == "auto":
        return processes_of(config, len(_asking(config)), on_gpu=True)
    return processes_of(config, len(remote(config.active)), on_gpu=True)


def remote(sources: Sequence[SourceConfig]) -> list[SourceConfig]:
    """Of these, the sources that capture processes take, unless there are to be none: those with packets to decode."""
    return [source for source in sources if isinstance(source, AvConfig)]


def surfaces_of(config: Config) -> int:
    """Pictures of one source on their way at once: on the board, in a lane's batch, in its thread's hands, and, where
    another process captures it, between the two."""
    if config.capture_processes != 0:
        return 5 if config.board.mode == "live" else config.board.depth + 2
    patient = PATIENT_DEPTH if any(source.is_patient for source in config.active) else 1
    waiting = patient if config.board.mode == "live" else config.board.depth
    return waiting + min(waiting, config.model.max_batch) + 2


def _detectors_memory(config: Config) -> int | None:
    """Bytes of the limit that are not for decoding: sources have up to three quarters of it."""
    limit = config.gpu.memory_limit_mib
    if limit is None:
        return None
    needed = len(_asking(config)) * decoder_bytes("hevc", *config.gpu.frame_size, surfaces_of(config))
    needed += processes_wished(config) * PROCESS_BYTES
    return (limit << 20) - min(needed, (limit << 20) * 3 // 4)


def _asking(config: Config) -> list[AvConfig]:
    """The sources that would be decoded on the GPU."""
    return [source for source in config.active if isinstance(source, AvConfig) and source.wants_gpu]
