"""The models of a daemon by name: each has its board, its lanes, and its view of the sources."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from daemon.errors import ConfigError
from daemon.pipeline.model_boards import ModelBoards
from daemon.pipeline.views import check_views

if TYPE_CHECKING:
    from daemon.config.root import Config
    from daemon.pipeline.frame_board import FrameBoard
    from daemon.pipeline.kit import Detection
    from daemon.pipeline.lane import LaneThread
    from daemon.pipeline.lanes import LaneSet
    from daemon.pipeline.ledger import Ledger
    from daemon.pipeline.stages import Analytics, BoxFilter
    from detectors.port import ModelInfo

Prepared = Mapping[str, "LaneSet"]
"""Lanes of other detectors that are warmed up, by name of the model that they are to replace."""
Filters = Mapping[str, Mapping[str, "BoxFilter"]]
"""By model and source."""


class ModelSet:
    """
    Args:
        detections: in the order of the configuration; there is one at least.
        analytics: of all models.
        ledger: has the accounts of the sources.

    Attributes:
        first: the model of the daemon, or the first of several.
        board: of a single model, or those of all.
    """

    def __init__(self, detections: Mapping[str, Detection], analytics: Analytics, ledger: Ledger) -> None:
        self._detections, self._analytics = detections, analytics
        self.first = next(iter(detections.values()))
        boards = {name: row.board for name, row in detections.items()}
        self.board: FrameBoard | ModelBoards = self.first.board if len(boards) == 1 else ModelBoards(boards, ledger)

    @property
    def detections(self) -> Mapping[str, Detection]:
        return self._detections

    @property
    def infos(self) -> dict[str, ModelInfo]:
        """The facts of each model."""
        return {name: row.lanes.info for name, row in self._detections.items()}

    @property
    def threads(self) -> list[LaneThread]:
        """All lanes that have not ended."""
        return [thread for row in self._detections.values() for thread in row.lanes.threads]

    def plan(self) -> ModelInfo:
        """The facts of the first model, with the memory of all models in its plan."""
        return planned_of(self.infos)

    def check(self, config: Config, prepared: Prepared) -> None:
        """Check tracking, rules and views of a configuration against the models, or against prepared ones.

        Raises:
            ConfigError: a model does not have a label, or its results cannot be merged.
        """
        infos = {**self.infos, **{name: row.info for name, row in prepared.items()}}
        self._analytics.check(config, {name: info.labels for name, info in infos.items()})
        check_fit(config, infos)

    def filters_of(self, config: Config, sources: Collection[str], prepared: Prepared) -> Filters:
        """The filters of these sources, and of all sources of prepared models.

        Raises:
            ConfigError: a model does not have a label of a source.
        """
        found: dict[str, Mapping[str, BoxFilter]] = {}
        for name, row in self._detections.items():
            active = config.for_model(name).active
            if (fresh := prepared.get(name)) is not None:
                found[name] = fresh.filters_of(active)
            else:
                found[name] = row.lanes.filters_of([source for source in active if source.id in sources])
        return found

    def prepare_analytics(self, config: Config) -> None:
        """Make ready for a checked configuration.

        Raises:
            LookoutError: it cannot be put into effect.
        """
        self._analytics.prepare(config)

    def configure(self, config: Config, filters: Filters, prepared: Prepared) -> None:
        """Put a prepared configuration into effect, while lanes work. The lanes of other models are left alone."""
        for name, row in self._detections.items():
            if (fresh := prepared.get(name)) is not None:
                fresh.update_filters(filters[name])
                row.lanes.adopt(fresh)
            else:
                row.lanes.update_filters(filters[name])
        self._analytics.configure(config)
        for name, row in self._detections.items():
            row.views.configure(config.for_model(name), row.lanes.info.input_size)

    def forget(self, source: str) -> None:
        """Remove a source. Its last frames may still be in a lane."""
        for row in self._detections.values():
            row.lanes.forget(source)
        self._analytics.forget(source)


def planned_of(infos: Mapping[str, ModelInfo]) -> ModelInfo:
    """The facts of the first model, with the memory of all models in its plan."""
    (first, *others) = infos.values()
    rows = ((f"{name}: {what}", size) for name, info in infos.items() for what, size in info.memory)
    return replace(first, memory=tuple(rows)) if others else first


def check_fit(config: Config, infos: Mapping[str, ModelInfo]) -> None:
    """Check the views and the labels of all sources against their models.

    Raises:
        ConfigError: the results of a model cannot be merged, or no model of a source has a label of it.
    """
    for name, info in infos.items():
        check_views(config.for_model(name), info)
    for source in config.active:
        known = {label for name in config.models_of(source) for label in infos[name].labels}
        for label in source.labels or ():
            if label not in known:
                raise ConfigError(f"sources, id {source.id}: none of its models has a label {label!r}")
