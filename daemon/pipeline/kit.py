"""Attaches the board and the lanes of a model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from daemon.lifecycle import Closing, Phase, Steps

if TYPE_CHECKING:
    from daemon.config.root import Config
    from daemon.pipeline.core import Core
    from daemon.pipeline.frame_board import FrameBoard
    from daemon.pipeline.lane import Follower, Observer
    from daemon.pipeline.lanes import Lanes
    from daemon.pipeline.stages import Analytics, Defaults
    from daemon.pipeline.views import SourceViews
    from daemon.system.stop_token import StopToken
    from detectors.port import Detector, ModelInfo

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Detection:
    """One model: from a frame to its result.

    Attributes:
        detector: as it was opened at the start.
    """

    detector: Detector
    board: FrameBoard
    views: SourceViews
    lanes: Lanes


@dataclass(frozen=True)
class Attached:
    """The parts of other features that lanes call; see `daemon.pipeline.lane.Pipeline`."""

    analytics: Analytics
    observers: Sequence[Observer]
    followers: Sequence[Follower]


def open_detection(
    core: Core, config: Config, model: str, detector: Detector, defaults: Defaults, attached: Attached, stop: StopToken
) -> Detection:
    """One model's way from a frame to its result; `ModelSet.check` says whether it fits the configuration.

    Args:
        config: of the model.
        model: its name, where there are several.
        detector: closed by its last lane, or here if it does not fit its sources.
        stop: of the daemon.

    Raises:
        ConfigError: the model does not have a label of a source.
    """
    from daemon.pipeline.lane import Pipeline
    from daemon.pipeline.lanes import Lanes
    from daemon.pipeline.views import SourceViews

    info = detector.info
    with ExitStack() as undo:
        undo.callback(detector.close)
        _log_model(config, model, info)
        board, views = _board_of(core, config, info), SourceViews(config, info.input_size)
        views.add_listener(board.set_pictures)
        views.add_size_listener(board.set_sizes)
        parts = board, core.outbox, core.ledger, core.runtime
        further = attached.observers, attached.analytics, attached.followers
        lanes = Lanes(detector, config.active, defaults, Pipeline(*parts, *further, views, model), stop)
        undo.pop_all()
    core.life.add(lanes, Phase.LANES)
    what = f"the detector {model}" if model else "the detector"
    closing = Closing(what, lanes.retire, core.runtime.clock)

    def close(seconds: float) -> None:
        closing.join(seconds)
        lanes.await_closed(seconds)  # a lane that is still inside closes it later

    core.life.add(Steps(what, join=close), Phase.MODELS)
    return Detection(detector, board, views, lanes)


def _log_model(config: Config, model: str, info: ModelInfo) -> None:
    from detectors.factory import passed_over

    of = {"model": model} if model else {}
    log.info("model", **of, **{key: getattr(info, key) for key in ("name", "digest", "head", "backend", "precision")})
    if config.model.backend == "auto" and config.model.provider is None:
        for row in passed_over(info.backend):
            log.info("backend passed over", backend=row.backend, reason=row.reason)
    for note in info.notes:
        log.warning(note)
    if info.startup:
        log.info("model opened", **of, **{name.replace(" ", "_"): seconds for name, seconds in info.startup})


def _board_of(core: Core, config: Config, info: ModelInfo) -> FrameBoard:
    from daemon.pipeline.board_rules import BoardRules
    from daemon.pipeline.frame_board import FrameBoard

    rules = BoardRules(
        depth=config.board.depth if config.board.mode == "lossless" else None,
        max_age_ns=round(config.board.max_age_ms * 1e6),
        lanes=info.lanes,
        batch=config.board.max_batch,
        gather=info.gpu is not None,
    )
    patient = [source.id for source in config.active if source.is_patient]
    return FrameBoard([source.id for source in config.active], core.ledger, core.runtime.clock, rules, patient)
