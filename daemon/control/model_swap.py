"""Opens models for the running daemon, beside those that they are to replace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from daemon.control.plan import options_of
from daemon.control.reload import defaults_of, is_served
from daemon.errors import ConfigError
from daemon.system.stop_token import StoppedError, StopToken
from detectors.factory import Backend
from detectors.port import Detector, DetectorError, ModelInfo, Options

if TYPE_CHECKING:
    from daemon.config.root import Config, LogConfig
    from daemon.pipeline.lanes import LaneSet
    from daemon.pipeline.model_set import ModelSet, Prepared

log = structlog.get_logger(__name__)
OpenDetector = Callable[[Backend, Options], Detector]
TryModel = Callable[[Backend, Options, "LogConfig", StopToken], None]


@dataclass(frozen=True)
class ModelLoader:
    """Opens models.

    Attributes:
        trial: tries a model in a process that can be killed, None to open it at once.
        reserved: bytes of GPU memory planned for classifiers.
    """

    open: OpenDetector
    trial: TryModel | None = None
    reserved: int = 0

    def prepare(self, models: ModelSet, new: Config, names: Sequence[str], stop: StopToken) -> dict[str, LaneSet]:
        """Open the models of these names, all or none, and warm their lanes up.

        Raises:
            ConfigError: one does not have a label of a source.
            DetectorError: one cannot be opened.
            StoppedError: `stop` is set.
        """
        found: dict[str, LaneSet] = {}
        try:
            for name in names:
                found[name] = self._prepare(models, name, new.for_model(name), found, stop)
        except BaseException:
            retire(found)
            raise
        return found

    def _prepare(self, models: ModelSet, name: str, own: Config, before: Prepared, stop: StopToken) -> LaneSet:
        infos = {**models.infos, **{other: row.info for other, row in before.items()}}
        beside = sum(info.memory_bytes for other, info in infos.items() if other != name)
        backend, options = own.model.backend, options_of(own, self.reserved + beside)
        if self.trial:
            self.trial(backend, options, own.log, stop)
        detector = self.open(backend, options)
        if stop.is_set:
            detector.close()
            raise StoppedError
        try:
            return models.detections[name].lanes.prepare(detector, own.active, defaults_of(own), stop)
        except ConfigError:
            detector.close()
            raise


def serve(opened: Prepared, opened_for: Config | None, names: Sequence[str], new: Config) -> bool:
    """Whether those models are open that a configuration needs.

    Args:
        opened_for: the configuration that they were opened for; None if there is none.
        names: of the models that it needs.
    """
    if not names:
        return True
    return opened_for is not None and all(name in opened and suits_now(opened_for, new, name) for name in names)


def suits_now(opened_for: Config, new: Config, name: str) -> bool:
    """Whether a model that was opened for one configuration serves another."""
    return is_served(opened_for.for_model(name), new.for_model(name))


def retire(prepared: Prepared) -> None:
    """End lanes that nobody needs, and close their detectors."""
    for row in prepared.values():
        row.retire()


def log_swap(model: str, info: ModelInfo) -> None:
    of = {"model": model} if model else {}
    log.info("model swapped", **of, name=info.name, digest=info.digest, precision=info.precision)
    for note in info.notes:
        log.warning(note, **of)


def limit_of(config: Config, names: Sequence[str]) -> float:
    """Seconds that these models may take to open."""
    return sum(config.for_model(name).model.open_timeout_s for name in names)


def too_slow(config: Config, names: Sequence[str]) -> DetectorError:
    paths = ", ".join(str(config.for_model(name).model.path) for name in names)
    limit = f"{limit_of(config, names):g} s"
    return DetectorError(f"model {paths} did not open within {limit}: it is given up; see model.open_timeout_s")
