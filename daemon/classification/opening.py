"""Opens the models of classifiers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import structlog

from detectors.factory import Backend
from detectors.port import DetectorError, Options, SecondDetector

log = structlog.get_logger(__name__)
OpenClassifier = Callable[[Backend, Options], SecondDetector]


def open_classifiers(
    open_one: OpenClassifier, backend: Backend, jobs: Sequence[tuple[str, Options]]
) -> list[SecondDetector]:
    """Open all classifiers on the backend of the first model, or none.

    Args:
        jobs: name and options of each.

    Raises:
        DetectorError: one cannot be used; the text names it.
    """
    with ExitStack() as undo:
        opened = []
        for name, options in jobs:
            try:
                detector = open_one(backend, options)
            except DetectorError as error:
                raise DetectorError(f"classifiers, name {name}: {_own_keys(str(error))}") from error
            undo.callback(detector.close)
            opened.append(detector)
            info = detector.info
            log.info("classifier", name=name, model=info.name, digest=info.digest, precision=info.precision)
            for note in info.notes:
                log.warning(f"classifier {name}: {_own_keys(note)}")
        undo.pop_all()
    return opened


def _own_keys(text: str) -> str:
    """A text about a first model with the keys of a classifier."""
    return text.replace("model.labels", "its labels").replace("model.precision", "its precision")
