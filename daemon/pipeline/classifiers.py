"""The port of classifiers that look into the boxes of tracks, and a daemon without any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from daemon.pipeline.lane import Follower
    from daemon.pipeline.stages import Analytics
    from detectors.port import ModelInfo
    from lookout.messages import ClassifierMetrics


class Classifiers(Protocol):
    """All classifiers: `daemon.classification.second_stage.SecondStage`, or `NoClassifiers`.

    Attributes:
        models: the facts of each classifier's model, by name of the classifier.
        memory_bytes: GPU memory planned for all of them.
        followers: for lanes.
    """

    @property
    def models(self) -> Mapping[str, ModelInfo]: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def followers(self) -> Sequence[Follower]: ...

    def metrics(self) -> dict[str, ClassifierMetrics]:
        """The accounts, by name of the classifier."""
        ...

    def with_attributes(self, analytics: Analytics) -> Analytics:
        """The stages of tracks and rules, and the attributes of tracks after them."""
        ...


class NoClassifiers:
    """Implements `Classifiers` without any."""

    models: Mapping[str, ModelInfo] = {}
    memory_bytes = 0
    followers: Sequence[Follower] = ()

    def metrics(self) -> dict[str, ClassifierMetrics]:
        return {}

    def with_attributes(self, analytics: Analytics) -> Analytics:
        return analytics
