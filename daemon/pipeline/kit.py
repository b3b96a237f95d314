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
    """From a frame to its result."""

    board: FrameBoard
    views: SourceViews
    lanes: Lanes


def open_detection(
    core: Core,
    detector: Detector,
    defaults: Defaults,
    analytics: Analytics,
    observers: Sequence[Observer],
    followers: Sequence[Follower],
    stop: StopToken,
) -> Detection:
    """
    Args:
        detector: closed by its last lane, or here if it does not fit.
        stop: of the daemon.

    Raises:
        ConfigError: the model does not have a label of the configuration, or its results cannot be merged.
    """
    from daemon.pipeline.lane import Pipeline
    from daemon.pipeline.lanes import Lanes
    from daemon.pipeline.views import SourceViews, check_views

    config, info = core.config, detector.info
    with ExitStack() as undo:
        undo.callback(detector.close)
        _log_model(config, info)
        check_views(config, info)
        analytics.check(config, info.labels)
        board, views = _board_of(core, info), SourceViews(config, info.input_size)
        views.add_listener(board.set_pictures)
        views.add_size_listener(board.set_sizes)
        parts = board, core.outbox, core.ledger, core.runtime
        lanes = Lanes(detector, config.active, defaults, Pipeline(*parts, observers, analytics, followers, views), stop)
        undo.pop_all()
    core.life.add(lanes, Phase.LANES)
    closing = Closing("the detector", lanes.retire, core.runtime.clock)

    def close(seconds: float) -> None:
        closing.join(seconds)
        lanes.await_closed(seconds)  # a lane that is still inside closes it later

    core.life.add(Steps("the detector", join=close), Phase.MODELS)
    return Detection(board, views, lanes)


def _log_model(config: Config, info: ModelInfo) -> None:
    from detectors.factory import passed_over

    log.info("model", **{key: getattr(info, key) for key in ("name", "digest", "head", "backend", "precision")})
    if config.model.backend == "auto" and config.model.provider is None:
        for row in passed_over(info.backend):
            log.info("backend passed over", backend=row.backend, reason=row.reason)
    for note in info.notes:
        log.warning(note)
    if info.startup:
        log.info("model opened", **{name.replace(" ", "_"): seconds for name, seconds in info.startup})


def _board_of(core: Core, info: ModelInfo) -> FrameBoard:
    from daemon.pipeline.frame_board import BoardRules, FrameBoard

    config = core.config
    rules = BoardRules(
        depth=config.board.depth if config.board.mode == "lossless" else None,
        max_age_ns=round(config.board.max_age_ms * 1e6),
        lanes=info.lanes,
        batch=config.board.max_batch,
        gather=info.gpu is not None,
    )
    patient = [source.id for source in config.active if source.is_patient]
    return FrameBoard([source.id for source in config.active], core.ledger, core.runtime.clock, rules, patient)
