"""Gathering of results, for a framework's module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from tests.frameworks.expected import PICTURES, Expected, Masks, nothing
from tests.frameworks.inputs import Floats, Placing
from tests.frameworks.runtime import Thresholds
from tests.support.pictures import digest, picture

TOP = 5
RANKED = ("picture", "score", "class")
BOX = ("picture", "x1", "y1", "x2", "y2", "score", "class")


class Gathered:
    """The rows of one picture after another."""

    def __init__(self) -> None:
        self._rows: list[Floats] = []
        self._sure: list[bool] = []

    def add(self, rows: Floats, others: Iterable[Floats] = ()) -> None:
        """One picture's rows.

        Args:
            others: the rows under thresholds that are a little lower or higher.
        """
        number = np.full((len(rows), 1), len(self._rows), np.float32)
        self._rows.append(np.concatenate((number, rows), axis=1))
        self._sure.append(all(np.array_equal(rows, other) for other in others))

    def expected(self, facts: dict[str, Any], masks: Masks | None = None, fine: Masks | None = None) -> Expected:
        sure = np.array(self._sure)
        return Expected(
            np.concatenate(self._rows),
            sure,
            nothing() if masks is None else masks,
            nothing() if fine is None else fine,
            facts,
        )


def best_near(scores: Floats) -> Iterator[Floats]:
    """Other rows where two of the best classes have nearly the same score; scores are (1, classes)."""
    best = np.sort(scores[0])[::-1][: TOP + 1]
    if np.diff(best).max() > -0.0001:
        yield np.zeros((0, 2), np.float32)


def facts_of(
    framework: str, columns: Sequence[str], placing: Placing, thresholds: Thresholds, head: str = "auto"
) -> dict[str, Any]:
    """See `Expected.facts`."""
    return {
        "framework": framework,
        "columns": list(columns),
        "placing": asdict(placing),
        "thresholds": asdict(thresholds),
        "kept": "all",
        "head": head,
        "pictures": digest(picture(number) for number in range(PICTURES)),
    }
