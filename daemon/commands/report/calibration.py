"""The page of `lookout calibrate`."""

from __future__ import annotations

from collections.abc import Sequence

from calibration.outcome import Outcome, Trial
from daemon.commands.report import Page, Table, filled, number

_MAX_CLASSES = 80


def page_of(outcome: Outcome, seconds: float) -> Page:
    """The page, for HTML and Markdown."""
    chosen = next(trial for trial in outcome.trials if trial.precision == outcome.chosen)
    labels = "labelled photos" if outcome.measure != "agreement" else "held-out frames, beside the float model"
    headline = (
        f"{outcome.model} on {outcome.backend}; {outcome.measure} over {labels}; {seconds:.0f} s. "
        f"Run {outcome.chosen}: {outcome.why}."
    )
    tiles = [
        ("run", outcome.chosen, chosen.file or ""),
        *((f"{trial.precision}", number(trial.value), outcome.measure) for trial in outcome.trials if trial.value),
    ]
    remarks = [f"{trial.precision}: {trial.reason}" for trial in outcome.trials if not trial.accepted]
    tables = [
        _precisions(outcome),
        _operation(outcome.trials),
        _agreement(outcome.trials),
        *(_path(trial, outcome.measure) for trial in outcome.trials),
        *(_placements(trial) for trial in outcome.trials),
        *(_costs(trial) for trial in outcome.trials),
        _classes(outcome.trials),
        _portable(outcome.trials),
        _frames(outcome),
    ]
    return Page(f"Calibration of {outcome.model}", headline, tiles, remarks, filled(tables), _plots(outcome))


def _precisions(outcome: Outcome) -> Table:
    head = ("", "", outcome.measure, "drop", "95 %", "over", "AP50", "frames/s", "least", "most", "p50 of one, ms",
            "file or plan, MiB", "memory, MiB", "W", "J per frame", "layers in float")  # fmt: skip
    rows = []
    for trial in outcome.trials:
        speed, accuracy, found = trial.speed, trial.score.accuracy if trial.score else None, trial.interval
        rows.append(
            (
                trial.precision,
                trial.ruling,
                number(trial.value),
                f"{found.drop:+.4f}" if found else "",
                f"{found.low:+.4f} to {found.high:+.4f}" if found else "",
                f"{found.units} {found.unit}" if found else "",
                number(accuracy.ap50) if accuracy else "",
                number(speed.fps) if speed else "",
                number(min(speed.turns)) if speed else "",
                number(max(speed.turns)) if speed else "",
                number(speed.latency_ms) if speed else "",
                number(speed.weights / (1 << 20)) if speed else "",
                number(speed.memory / (1 << 20)) if speed and speed.memory else "",
                number(speed.watts) if speed else "",
                number(speed.joules) if speed else "",
                str(len(trial.float_layers)) if trial.layers else "",
            )
        )
    return Table("Precisions", head, rows)


def _operation(trials: Sequence[Trial]) -> Table:
    """Precision and recall at the user's confidence threshold."""
    rows = [
        (trial.precision, number(seen.confidence), f"{seen.precision:.4f}", f"{seen.recall:.4f}")
        for trial in trials
        if trial.score and (seen := trial.score.operation)
    ]
    return Table("At the confidence that you run with, IoU 0.5", ("", "confidence", "precision", "recall"), rows)


def _agreement(trials: Sequence[Trial]) -> Table:
    head = ("", "agree", "matched", "missed", "new", "mean IoU", "confidence shift", "frames")
    rows = [
        (
            trial.precision,
            f"{found.share:.4f}",
            str(found.matched),
            str(found.missed),
            str(found.new),
            f"{found.mean_iou:.4f}",
            f"{found.confidence_shift:+.4f}",
            str(found.frames),
        )
        for trial in trials[1:]
        if trial.score and (found := trial.score.agreement)
    ]
    return Table("Beside the float model", head, rows)


def _path(trial: Trial, measure: str) -> Table:
    rows = [(f"ranges by {name}", "", number(value)) for name, value in trial.methods.items()]
    rows += [
        (
            f"{trial.method}, {step.layers} of the most sensitive layers in float",
            "enough" if step.kept else "",
            number(step.score),
        )
        for step in trial.steps
    ]
    return Table(f"{trial.precision}: tries", ("", "", measure), rows)


def _placements(trial: Trial) -> Table:
    rows = [
        (row.placement.kind, str(len(row.placement.floats)), number(row.milliseconds), "" if place else "taken")
        for place, row in enumerate(trial.placements)
        if row.milliseconds
    ]
    head = ("one scale for", "layers faster in float", "ms per full batch, model alone", "")
    return Table(f"{trial.precision}: placement", head, rows)


def _costs(trial: Trial) -> Table:
    floats = set(trial.float_layers)
    rows = [(row.layer, number(row.noise), "float" if row.layer in floats else "") for row in trial.costs]
    return Table(f"{trial.precision}: sensitivity of each layer", ("", "noise over signal before the head", ""), rows)


def _classes(trials: Sequence[Trial]) -> Table:
    evaluated = [trial for trial in trials if trial.score and trial.score.accuracy]
    if len(evaluated) < 2:
        return Table("Classes", (), [])
    first, *others = [(trial.precision, trial.score.accuracy.classes) for trial in evaluated if trial.score
                      and trial.score.accuracy]  # fmt: skip
    head = ("", first[0], *(f"{name}, difference" for name, _ in others))
    rows = [
        (name, f"{value:.3f}", *(f"{classes.get(name, 0.0) - value:+.3f}" for _, classes in others))
        for name, value in first[1].items()
    ]
    rows.sort(key=lambda row: min(float(cell) for cell in row[2:]))
    return Table("AP by class, the greatest loss first", head, rows[:_MAX_CLASSES])


def _portable(trials: Sequence[Trial]) -> Table:
    rows = [
        (trial.precision, reader, "; ".join(problems) or "nothing found")
        for trial in trials
        for reader, problems in trial.portable.items()
    ]
    return Table("The file, by the rules of each TensorRT", ("", "TensorRT", "problems"), rows, notes=True)


def _frames(outcome: Outcome) -> Table:
    frames = outcome.frames
    rows = [
        ("calibration frames", str(frames.count(held_out=False))),
        ("held-out frames", str(frames.count(held_out=True))),
        ("pictures for choosing", str(len(outcome.steering))),
        ("test pictures", str(len(outcome.judging))),
        ("sources", str(frames.sources)),
        ("frames read", str(frames.seen)),
        ("unusable", str(frames.unusable)),
        ("too similar", str(frames.alike)),
        ("seed", str(frames.seed)),
    ]
    return Table("Frames", ("", ""), rows)


def _plots(outcome: Outcome) -> list[tuple[str, str]]:
    from daemon.commands.report import calibration_plots as plots

    plotted = [("tradeoff", plots.tradeoff(outcome))]
    plotted += [(f"layers-{trial.precision}", plots.layers(trial)) for trial in outcome.trials if trial.costs]
    plotted += [(f"path-{trial.precision}", plots.path(trial, outcome)) for trial in outcome.trials if trial.steps]
    return [(name, svg) for name, svg in plotted if svg]
