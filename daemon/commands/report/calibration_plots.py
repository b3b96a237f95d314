"""Plots of `lookout calibrate`, as SVG."""

from __future__ import annotations

from calibration.evaluator import AIM_SHARE
from calibration.outcome import Outcome, Trial
from daemon.commands.report.draw import BLUE, GREEN, INK, ORANGE, RED, SOFT, figure_of

_MAX_LAYERS = 15


def tradeoff(outcome: Outcome) -> str:
    """Accuracy against speed, with the 95 % interval of the loss; the dashed line is the budget."""
    timed = [trial for trial in outcome.trials if trial.speed and trial.value is not None]
    with figure_of("tradeoff", 7.2, 3.2) as (figure, out):
        axes = figure.subplots()
        for trial in timed:
            chosen = trial.precision == outcome.chosen
            rate = trial.speed.fps if trial.speed else 0.0
            axes.plot(rate, trial.value or 0.0, "o", markersize=11 if chosen else 7, color=GREEN if chosen else BLUE)
            if found := trial.interval:
                value = trial.value or 0.0
                reach = [[max(0.0, found.high - found.drop)], [max(0.0, found.drop - found.low)]]
                axes.errorbar(rate, value, reach, color=GREEN if chosen else BLUE, capsize=4, linewidth=1)
            axes.annotate(
                trial.precision, (rate, trial.value or 0.0), (8, 6), textcoords="offset points", color=INK, fontsize=9
            )
        minimum = next((trial.least for trial in outcome.trials if trial.least is not None), None)
        if minimum is not None:
            axes.axhline(minimum, color=RED, linewidth=1, linestyle=(0, (4, 3)))
        axes.margins(0.15)
        axes.set_xlim(left=0)
        axes.set_xlabel("frames/s")
        axes.set_ylabel(outcome.measure)
        axes.set_title("Accuracy against speed; green is chosen, bars 95 %, dashed the budget")
        figure.tight_layout()
    return out[0]


def layers(trial: Trial) -> str:
    """Noise of the most sensitive layers."""
    rows = list(reversed(trial.costs[:_MAX_LAYERS]))
    floats = set(trial.float_layers)
    with figure_of(f"layers-{trial.precision}", 7.2, 0.26 * len(rows) + 0.9) as (figure, out):
        axes = figure.subplots()
        colours = [ORANGE if row.layer in floats else BLUE for row in rows]
        axes.barh([row.layer for row in rows], [row.noise for row in rows], color=colours)
        axes.set_xscale("log")
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", labelcolor=INK, labelsize=8)
        axes.set_xlabel("noise over signal before the head")
        axes.set_title(f"{trial.precision}: the most sensitive layers; orange: restored to float")
        figure.tight_layout()
    return out[0]


def path(trial: Trial, outcome: Outcome) -> str:
    """Score by number of restored layers."""
    rows = sorted(trial.steps, key=lambda step: step.layers)
    with figure_of(f"path-{trial.precision}", 7.2, 2.8) as (figure, out):
        axes = figure.subplots()
        start = max(trial.methods.values(), default=None)
        points = [(0, start)] if start is not None else []
        points += [(step.layers, step.score) for step in rows]
        axes.plot([x for x, _ in points], [y for _, y in points], "o-", color=BLUE, markersize=4)
        if trial.aim is not None:
            axes.axhline(trial.aim, color=RED, linewidth=1, linestyle=(0, (4, 3)))
            axes.axhline(trial.aim + AIM_SHARE * outcome.budget, color=SOFT, linewidth=1)
        axes.set_xlabel("most sensitive layers in float")
        axes.set_ylabel(outcome.measure)
        axes.set_title(f"{trial.precision}: layers restored; grey the float model, dashed the aim")
        figure.tight_layout()
    return out[0]
