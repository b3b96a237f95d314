"""From the configuration to what the detector and the decoders get of the GPU."""

from __future__ import annotations

from daemon.config import AvConfig, Config
from daemon.errors import ConfigError
from daemon.sources.decoding import Hardware, NoHardware
from daemon.sources.factory import open_hardware
from daemon.sources.nvdec.memory import decoder_bytes
from detectors.port import ModelInfo, Options, Wanted


def options_of(config: Config) -> Options:
    """What the detector needs to know; its threshold is the lowest that any source wants."""
    model = config.model
    wishes = [source.confidence for source in config.active if source.confidence is not None]
    return Options(
        path=model.path,
        head=model.head,
        labels=model.labels,
        input_size=model.input_size,
        wanted=Wanted(min([model.confidence, *wishes]), model.iou, model.max_detections),
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


def hardware_of(config: Config, model: ModelInfo) -> Hardware:
    """What decodes on the GPU, for lanes that take its pictures.

    Raises:
        ConfigError: a source asks for it and it cannot be had.
    """
    asking = _asking(config)
    hardware: Hardware
    if not asking:
        return NoHardware("no source asks for it")
    if model.gpu is None:
        hardware = NoHardware(f"the {model.backend} backend reads pictures in host memory")
    else:
        limit = config.gpu.memory_limit_mib
        left = None if limit is None else max(0, (limit << 20) - sum(dict(model.memory).values()))
        hardware = open_hardware(model.gpu, surfaces_of(config), left)
    if isinstance(hardware, NoHardware):
        for source in asking:
            if source.decode == "nvdec":
                raise ConfigError(f"sources, id {source.id}: decode: nvdec cannot be had: {hardware.reason}")
    return hardware


def surfaces_of(config: Config) -> int:
    """Pictures of one source on their way at once: on the board, in a lane's batch, in its thread's hands."""
    waiting = 1 if config.board.mode == "live" else config.board.depth
    return waiting + min(waiting, config.model.max_batch) + 2


def _detectors_memory(config: Config) -> int | None:
    """Bytes of the limit that are not for decoding: sources have up to three quarters of it."""
    limit = config.gpu.memory_limit_mib
    if limit is None:
        return None
    needed = len(_asking(config)) * decoder_bytes("hevc", *config.gpu.frame_size, surfaces_of(config))
    return (limit << 20) - min(needed, (limit << 20) * 3 // 4)


def _asking(config: Config) -> list[AvConfig]:
    """The sources that would be decoded on the GPU."""
    return [source for source in config.active if isinstance(source, AvConfig) and source.decode != "cpu"]
