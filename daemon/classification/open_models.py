"""Opens the models of classifiers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

import structlog

from detectors.factory import Backend
from detectors.port import DetectorError, DetectorUnavailableError, Options, SecondDetector

log = structlog.get_logger(__name__)
OpenClassifier = Callable[[Backend, Options], SecondDetector]


def open_classifiers(
    open_one: OpenClassifier, backend: Backend, jobs: Sequence[tuple[str, Options]]
) -> list[SecondDetector]:
    """Open all classifiers on the backend of the first model, or none. Each leaves the GPU memory that is planned for
    those before it.

    Args:
        jobs: name and options of each.

    Raises:
        DetectorUnavailableError: the server of one is away; the text names it.
        DetectorError: one cannot be used; likewise.
    """
    with ExitStack() as undo:
        opened: list[SecondDetector] = []
        for name, options in jobs:
            reserved = options.reserved + sum(other.info.memory_bytes for other in opened)
            try:
                detector = open_one(backend, replace(options, reserved=reserved))
            except DetectorError as error:
                kind = DetectorUnavailableError if isinstance(error, DetectorUnavailableError) else DetectorError
                raise kind(f"classifiers, name {name}: {_own_keys(str(error))}") from error
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
    return re.sub(r"\bmodel\.(labels|precision|mean|std|activation|max_batch)\b", r"its \1", text)
