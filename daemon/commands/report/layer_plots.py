"""The picture of `lookout engine profile`, as SVG."""

from __future__ import annotations

from matplotlib.patches import Patch

from daemon.commands.report.draw import BLUE, GREEN, INK, ORANGE, SOFT, VIOLET, figure_of
from detectors.layer_times import LayerTimes

_COLOURS = {"fp32": ORANGE, "fp16": BLUE, "bf16": BLUE, "int8": GREEN, "fp8": VIOLET}
_WIDTH = 44  # characters of a layer's name


def slowest(times: LayerTimes, top: int) -> str:
    """Bars of the slowest layers, the longest at the top, with the share of the whole time and the input precision."""
    rows = times.slowest[:top]
    colours = [_COLOURS.get(row.precision or "", SOFT) for row in rows]
    took = [1000 * (row.milliseconds or 0.0) for row in rows]
    with figure_of("engine-layers", 8.4, 0.26 * len(rows) + 1.2) as (figure, out):
        axes = figure.subplots()
        axes.barh(range(len(rows)), took, color=colours)
        axes.set_yticks(range(len(rows)), [_short(row.label) for row in rows])
        axes.invert_yaxis()
        axes.set_xlim(0, 1.3 * max([*took, 1e-6]))
        for number, row in enumerate(rows):
            text = f" {took[number]:.1f} us, {100 * times.share(row):.1f} %"
            axes.text(took[number], number, text, va="center", color=INK, fontsize=8)
        found = dict(zip([row.precision or "unknown" for row in rows], colours))
        handles = [Patch(color=colour, label=name) for name, colour in found.items()]
        axes.legend(handles=handles, fontsize=9, loc="lower right")
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", labelcolor=INK, labelsize=8)
        axes.set_xlabel("us")
        axes.set_title(
            f"{len(rows)} of {len(times.layers)} layers, batch {times.batch}: {times.milliseconds:.3f} ms in all"
        )
        figure.tight_layout()
    return out[0]


def _short(name: str) -> str:
    """A name's end tells layers apart. A dollar sign would begin a formula."""
    kept = name if len(name) <= _WIDTH else f"...{name[3 - _WIDTH :]}"
    return kept.replace("$", r"\$")
