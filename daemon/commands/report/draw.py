"""Drawing of plots: one style, as SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

INK, SOFT, LINE = "#1c2733", "#6b7885", "#dfe4e9"
BLUE, ORANGE, GREEN, RED, VIOLET = "#2767c5", "#d9822b", "#2f9e6b", "#c4314b", "#7a58c1"
SERIES = (BLUE, ORANGE, GREEN, VIOLET, RED, SOFT)
_NAMES = re.compile(r' id="[a-z0-9_.]+_\d+"')  # of groups; equal in every plot, and never referenced
_STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": ["sans-serif"],
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": SOFT,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "legend.frameon": False,
}


def plain_numbers(axis: Any) -> None:
    """Label a logarithmic axis with 1, 2, 5."""
    axis.set_major_locator(mpl.ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(mpl.ticker.NullFormatter())


@contextmanager
def figure_of(name: str, width: float, height: float) -> Iterator[tuple[Figure, list[str]]]:
    """A figure to draw in; its SVG is in the list afterwards.

    Args:
        name: makes its ids unique on a page, and reproducible.
    """
    out: list[str] = []
    with mpl.rc_context(_STYLE | {"svg.hashsalt": name}):
        figure = Figure(figsize=(width, height))
        yield figure, out
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
        text = file.getvalue()
        out.append(_NAMES.sub("", text[text.index("<svg") :]))
