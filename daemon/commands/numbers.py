"""Numbers on the command line."""

from __future__ import annotations

import math
from typing import Any

import click

MOST = 1e7  # of what has no smaller limit; as seconds, four months


class Number(click.FloatRange):
    """A number between two limits: neither infinite, nor none at all."""

    def __init__(self, min: float, max: float = MOST, *, min_open: bool = False) -> None:
        super().__init__(min, max, min_open=min_open)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        given = click.FLOAT.convert(value, param, ctx)
        if given > MOST == self.max:  # which help does not show
            self.fail(f"{value} is more than {MOST:.0f}", param, ctx)
        number = super().convert(given, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number

    def _describe_range(self) -> str:
        return super()._describe_range().partition(f"<={MOST}")[0] if self.max == MOST else super()._describe_range()
