"""The meaning of a model's input and outputs, where their shapes do not show it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple

Activation = Literal["none", "sigmoid", "softmax"]
BoxUnits = Literal["pixels", "shares"]
Origin = Literal["file", "key", "family", "trial"]
ORIGINS: dict[Origin, str] = {
    "file": "stated by the file",
    "key": "set",
    "family": "of its family",
    "trial": "shown by a trial",
}
Colour = tuple[float, float, float]
"""A number for each channel of the input, in the model's order."""


@dataclass(frozen=True)
class Semantics:
    """Facts about a model; None where one is not known.

    Attributes:
        mean, std: (colour - mean) / std is the input. Colours are 0 to 1, and 0 to 255 where a number is above 1.
        rgb: order of the channels: RGB, or BGR.
        activation: the function that makes scores of the outputs.
        box_units: of corners that the model has chosen itself: pixels of the input, or shares of its sides.
        first_class: the class id of the first label.
    """

    mean: Colour | None = None
    std: Colour | None = None
    rgb: bool | None = None
    activation: Activation | None = None
    box_units: BoxUnits | None = None
    first_class: int | None = None

    def __or__(self, other: Semantics) -> Semantics:
        """The own facts, and the other's where an own one is not known."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        return Semantics(**{name: getattr(other, name) if value is None else value for name, value in own.items()})

    @property
    def known(self) -> frozenset[str]:
        """Names of the facts that are known."""
        return frozenset(one.name for one in fields(self) if getattr(self, one.name) is not None)


NOTHING_KNOWN = Semantics()
SIGMOID, SOFTMAX = Semantics(activation="sigmoid"), Semantics(activation="softmax")
CHOSEN = Semantics(box_units="pixels", first_class=0)  # of boxes that a model has chosen itself


class Fact(NamedTuple):
    """A fact about an opened model.

    Attributes:
        name: such as "mean".
        origin: file: its metadata state it. key: the configuration does. family: all models of the head have it.
            trial: the model showed it when it was opened.
    """

    name: str
    value: str
    origin: Origin


def by_origin(facts: Sequence[Fact]) -> Iterator[str]:
    """A line for each origin, with the facts from there."""
    for origin, words in ORIGINS.items():
        rows = [f"{fact.name} {fact.value}" for fact in facts if fact.origin == origin]
        if rows:
            yield f"{words}: {', '.join(rows)}"


def unit_colours(mean: Colour, std: Colour) -> tuple[Colour, Colour] | None:
    """Mean and deviation for colours of 0 to 1; None where no colours have these, or two kinds could."""
    if not all(0 <= one <= 255 for one in mean) or not all(0 < one <= 255 for one in std):
        return None
    if max(mean) <= 1 and max(std) <= 1:
        return mean, std
    # Of 0 to 255. A mean below 1 belongs to colours of 0 to 1, and so does a small deviation beside a large mean.
    if 0 < max(mean) <= 1 or (max(mean) > 1 and min(std) < 1):
        return None
    return _scaled(mean), _scaled(std)


def _scaled(colour: Colour) -> Colour:
    red, green, blue = colour
    return red / 255, green / 255, blue / 255
