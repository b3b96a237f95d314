"""Attaches the classifiers that look into the boxes of tracks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from daemon.analytics.event import Event
from daemon.classification.open_models import OpenClassifier, open_classifiers
from daemon.classification.second_stage import SecondStage
from daemon.lifecycle import Phase
from daemon.pipeline.core import Core
from detectors.port import Options


def open_second_stage(
    core: Core,
    open_one: OpenClassifier,
    jobs: Sequence[tuple[str, Options]],
    on_failure: Callable[[str, str], None],
    on_event: Callable[[Event], None],
) -> SecondStage:
    """The second stage, on the backend of the model. It is opened first, so that the model is opened with the memory
    that classifiers leave.

    Args:
        jobs: name and options of each classifier.
        on_failure, on_event: see `SecondStage`.

    Raises:
        DetectorError: a classifier cannot be opened.
    """
    work = partial(open_classifiers, open_one, core.config.model.backend, jobs)
    opened = core.opener.open_models("opening classifiers", work)
    second = SecondStage(core.config, opened, on_failure, on_event, core.runtime)
    for classifier in second.classifiers:
        core.life.add(classifier, Phase.CLASSIFIERS)
    return second
