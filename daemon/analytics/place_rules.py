"""The parts that all rules about a place have in common."""

from __future__ import annotations

from typing import Generic, TypeVar

from daemon.geometry import Edge, edges_of
from daemon.rule_config import ANCHOR_WEIGHTS, Anchor, PlacedRule

R = TypeVar("R", bound=PlacedRule)
NS = 1_000_000_000


def weight_of(anchor: Anchor) -> float:
    """The share of the lower edge in an anchor's height; the upper edge has the rest."""
    return ANCHOR_WEIGHTS[anchor]


def ns_of(seconds: float) -> int:
    return round(seconds * NS)


class PlacedEvaluator(Generic[R]):
    """The outlines of a rule, in pixels of the newest frame.

    Attributes:
        weight: of the box's lower edge in the anchor's height.
        outlines: the edges of each polygon or line.
    """

    band, closed, outlasts_loss = 0.0, False, False

    def __init__(self, config: R) -> None:
        self.config = config
        self.weight = weight_of(config.anchor)
        self.outlines: list[tuple[Edge, ...]] = []

    def fit(self, width: int, height: int) -> None:
        self.outlines = [edges_of(points, closed=self.closed) for points in self.config.scaled(width, height)]
