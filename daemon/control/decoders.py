"""The GPU's decoder, as the configuration asks for it and the models leave memory to it."""

from __future__ import annotations

from daemon.config.root import Config
from daemon.control.plan import decoding_memory, gpu_sources, surfaces_of
from daemon.errors import ConfigError
from daemon.sources.decode import DecoderBackend, NoHardwareDecoder
from daemon.sources.factory import probe_decoder
from detectors.port import ModelInfo


def decoder_backend_of(config: Config, model: ModelInfo) -> DecoderBackend | NoHardwareDecoder:
    """The GPU's decoder, if lanes can read its pictures. Sources may start to use it later.

    Args:
        model: with the memory of all models in its plan.

    Raises:
        ConfigError: a source requires it and it cannot be used.
    """
    if model.gpu is None:
        found: DecoderBackend | NoHardwareDecoder = NoHardwareDecoder(
            f"the {model.backend} backend reads pictures in host memory"
        )
    else:
        found = probe_decoder(model.gpu, surfaces_of(config), decoding_memory(config, model))
    if isinstance(found, NoHardwareDecoder):
        for source in gpu_sources(config):
            if source.decode == "nvdec":
                raise ConfigError(f"sources, id {source.id}: decode: nvdec is not possible: {found.reason}")
    return found
