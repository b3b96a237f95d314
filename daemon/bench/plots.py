"""Plots of a report, as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np

from daemon.bench.result import Case, Constraints, Peer
from daemon.bench.run import Run
from daemon.bench.search import SETTINGS, batch_of, knee
from daemon.commands.report.draw import (
    BLUE,
    GREEN,
    INK,
    LINE,
    ORANGE,
    RED,
    SERIES,
    SOFT,
    VIOLET,
    figure_of,
    plain_numbers,
)


def latency(runs: Sequence[Run]) -> str:
    """Distribution of latency over all runs, on a logarithmic axis."""
    counts = np.sum([run.histogram.counts for run in runs], axis=0)
    edges = np.array(runs[0].histogram.edges_ms)
    if not counts.sum():
        return ""
    first, last = np.flatnonzero(counts)[[0, -1]]
    with figure_of("latency", 7.2, 3.2) as (figure, out):
        axes = figure.subplots()
        axes.stairs(100 * counts / counts.sum(), edges, fill=True, color=BLUE, alpha=0.85)
        axes.set_xscale("log")
        axes.set_xlim(edges[max(0, first - 2)], edges[min(len(edges) - 1, last + 3)])
        plain_numbers(axes.xaxis)
        axes.set_ylim(top=1.35 * axes.get_ylim()[1])
        top = axes.get_ylim()[1]
        for name, colour, height in (("p50", INK, 0.97), ("p99", ORANGE, 0.85), ("p99.9", RED, 0.73)):
            value = float(np.median([run.latency_ms[name] for run in runs]))
            axes.axvline(value, color=colour, linewidth=1.2)
            axes.text(value, top * height, f" {name} {value:.1f} ms", color=colour, va="top")
        axes.set_xlabel("ms")
        axes.set_ylabel("% of frames")
        axes.set_title(f"Latency, {'from when a frame was due' if runs[0].loop == 'open' else 'captured to sent'}")
        figure.tight_layout()
    return out[0]


def stages(runs: Sequence[Run]) -> str:
    """p50 and p99 of each stage."""
    names = [name for name in runs[0].stages_ms if any(run.stages_ms[name]["max"] for run in runs if run.stages_ms)]
    if not names:
        return ""
    with figure_of("stages", 7.2, 0.42 * len(names) + 1.0) as (figure, out):
        axes = figure.subplots()
        for row, name in enumerate(reversed(names)):
            middle, high = (float(np.median([run.stages_ms[name][rank] for run in runs])) for rank in ("p50", "p99"))
            middle, high = max(middle, 1e-3), max(high, 1e-3)
            axes.plot([middle, high], [row, row], color=BLUE, linewidth=6, alpha=0.3, solid_capstyle="round")
            axes.plot(middle, row, "o", color=BLUE, markersize=7)
            axes.plot(high, row, "o", color=ORANGE, markersize=5)
            axes.annotate(f"{middle:.2f} to {high:.2f}", (high, row), (9, 0), textcoords="offset points", va="center",
                          color=SOFT, fontsize=9)  # fmt: skip
        axes.set_yticks(range(len(names)), [*reversed(names)], color=INK)
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        axes.set_xlim(low, high * 6)
        plain_numbers(axes.xaxis)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("ms")
        axes.set_title("Where the time goes: p50 and p99 of each stage")
        figure.tight_layout()
    return out[0]


def timeline(run: Run) -> str:
    """Throughput and usage over time."""
    at = [second.at_s for second in run.timeline]
    rows: list[tuple[str, list[tuple[str, list[float | None], str]]]] = [
        ("frames/s", [("", [second.fps for second in run.timeline], BLUE)]),
        ("ms", [("p50", [second.p50_ms for second in run.timeline], BLUE),
                ("p99", [second.p99_ms for second in run.timeline], ORANGE)]),
        ("W", [("", [second.power_w for second in run.timeline], RED)]),
        ("% busy", [("GPU", [second.gpu_percent for second in run.timeline], GREEN),
                    ("decoder", [second.decoder_percent for second in run.timeline], VIOLET)]),
        ("GPU, MiB", [("", [second.memory_mib for second in run.timeline], SOFT)]),
    ]  # fmt: skip
    shown = [row for row in rows if any(value is not None for _, values, _ in row[1] for value in values)]
    if len(at) < 2 or not shown:
        return ""
    with figure_of("timeline", 7.2, 1.15 * len(shown) + 0.6) as (figure, out):
        grid = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (unit, series) in zip(grid, shown):
            for name, values, colour in series:
                known = [np.nan if value is None else value for value in values]
                axes.plot(at, known, color=colour, linewidth=1.6, label=name or None)
            axes.set_ylabel(unit)
            axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
            if any(name for name, _, _ in series):
                axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)
        grid[0].set_title("Over time, first run")
        grid[-1].set_xlabel("s")
        figure.align_ylabels()
        figure.tight_layout()
    return out[0]


def grid(cases: Sequence[Case]) -> str:
    """Throughput by batch, a line per combination of other settings; the knee is ringed."""
    with figure_of("grid", 7.2, 3.6) as (figure, out):
        axes = figure.subplots()
        for colour, (name, group) in zip(_cycle(), _groups(cases).items()):
            ordered = sorted(group, key=batch_of)
            batches, fps = [batch_of(case) for case in ordered], [case.value("fps") or 0.0 for case in ordered]
            axes.plot(batches, fps, "o-", color=colour, label=name, markersize=4)
            if found := knee(group):
                axes.plot(
                    batch_of(found), found.value("fps") or 0.0, "o", markersize=12, fillstyle="none", color=colour
                )
        batches = sorted({batch_of(case) for case in cases})
        axes.set_xscale("log", base=2)
        axes.set_xticks(batches, [str(batch) for batch in batches])
        axes.minorticks_off()
        axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
        axes.set_xlabel("largest batch of a lane")
        axes.set_ylabel("frames/s")
        axes.set_title("Throughput by batch; ringed: the smallest batch within 5 % of the best")
        _name_lines(axes)
        figure.tight_layout()
    return out[0]


def tradeoff(cases: Sequence[Case]) -> str:
    """Latency against throughput."""
    with figure_of("tradeoff", 7.2, 3.6) as (figure, out):
        axes = figure.subplots()
        for colour, (name, group) in zip(_cycle(), _groups(cases).items()):
            ordered = sorted(group, key=batch_of)
            fps, p99 = (
                [case.value("fps") or np.nan for case in ordered],
                [case.value("p99") or np.nan for case in ordered],
            )
            axes.plot(fps, p99, "o-", color=colour, label=name, markersize=4, linewidth=1, alpha=0.9)
            for case, x, y in zip(ordered, fps, p99):
                axes.annotate(str(batch_of(case)), (x, y), (3, 4), textcoords="offset points", fontsize=8, color=colour)
        axes.set_yscale("log")
        plain_numbers(axes.yaxis)
        axes.set_xlabel("frames/s")
        axes.set_ylabel("p99, ms")
        axes.set_title("Latency against throughput; numbers are batches")
        _name_lines(axes)
        figure.tight_layout()
    return out[0]


def source_search(cases: Sequence[Case], wanted: Constraints) -> str:
    """Latency and drops by number of sources, with the constraints."""
    ordered = sorted(cases, key=lambda case: int(case.load["sources"]))
    numbers = [int(case.load["sources"]) for case in ordered]
    colours = [GREEN if case.kept else RED for case in ordered]
    with figure_of("most", 7.2, 3.6) as (figure, out):
        above, below = figure.subplots(2, 1, sharex=True)
        for axes, name, limit, unit, scale in (
            (above, "p99", wanted.p99_ms, "p99, ms", 1.0),
            (below, "dropped", wanted.dropped_percent, "dropped, %", 100.0),
        ):
            values = [scale * (case.value(name) or 0.0) for case in ordered]
            axes.plot(numbers, values, color=LINE, zorder=1)
            axes.scatter(numbers, values, c=colours, zorder=2)
            axes.axhline(limit, color=SOFT, linewidth=1, linestyle=(0, (4, 3)))
            axes.set_ylabel(unit)
            axes.set_ylim(bottom=-0.05 * max([*values, limit, 1e-3]))
        above.set_title("Live sources: green meets the constraints (dashed)")
        below.set_xlabel("sources")
        below.xaxis.set_major_locator(mpl.ticker.MaxNLocator(integer=True))
        figure.align_ylabels()
        figure.tight_layout()
    return out[0]


def bars(lookout: float, peers: Sequence[Peer]) -> str:
    """Lookout and programs that were interleaved with it."""
    rows = [("Lookout", lookout, BLUE)]
    rows += [(row.name, float(np.median(row.fps)), ORANGE if row.kind == "peer" else LINE) for row in peers if row.fps]
    rows.sort(key=lambda row: row[1])
    with figure_of("bars", 7.2, 0.45 * len(rows) + 0.9) as (figure, out):
        axes = figure.subplots()
        axes.barh([name for name, _, _ in rows], [fps for _, fps, _ in rows], color=[colour for _, _, colour in rows])
        for number, (_, fps, _) in enumerate(rows):
            axes.text(fps, number, f" {fps:,.0f}  ({fps / lookout:.3g} of Lookout)", va="center", color=INK, fontsize=9)
        axes.set_xlim(0, 1.35 * max(fps for _, fps, _ in rows))
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", labelcolor=INK)
        axes.set_xlabel("frames/s")
        axes.set_title("Interleaved; grey: a limit of the hardware")
        figure.tight_layout()
    return out[0]


def _groups(cases: Sequence[Case]) -> dict[str, list[Case]]:
    """Cases by the settings that differ, except batch."""
    names = [
        name for name in SETTINGS if name != "batch" and len({case.load[name] for case in cases if case.repeats}) > 1
    ]
    groups: dict[str, list[Case]] = {}
    for case in cases:
        if case.repeats:
            key = ", ".join(_words(name, case.load[name]) for name in names) or "all"
            groups.setdefault(key, []).append(case)
    return groups


def _words(name: str, value: object) -> str:
    if not isinstance(value, int):
        return str(value)
    return f"{value} {name if value != 1 else name.rstrip('s')}"


def _name_lines(axes: Any) -> None:
    """A legend beside the plot, if there are several lines."""
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend(fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _cycle() -> Iterator[str]:
    while True:
        yield from SERIES
