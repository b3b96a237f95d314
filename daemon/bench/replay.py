"""`lookout bench replay`: one configuration, measured as often as a figure needs to be believed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from daemon.bench.apart import measured, streams_of
from daemon.bench.load import Load
from daemon.bench.result import Accuracy, Case, Report, environment_of, load_of
from daemon.errors import LookoutError
from daemon.paths import demo_model


def replay(
    load: Load,
    *,
    repeats: int = 5,
    copies: int = 1,
    labelled: tuple[Path, Path] | None = None,
    frames_out: Path | None = None,
    on_repeat: Callable[[], None] = lambda: None,
) -> Report:
    """Run and measure, each repeat in a process of its own.

    Args:
        copies: daemons at once, each with this load, on the one machine.
        labelled: photos and their annotations, to measure the accuracy as well.
        frames_out: file to record every frame of the first repeat in.

    Raises:
        LookoutError: a run failed.
    """
    if frames_out and copies > 1:
        raise LookoutError("--frames-out records one daemon: leave out --copies")
    environment = environment_of(load)
    rounds = []
    for number in range(repeats):
        rounds.append(streams_of(load, copies=copies, frames_out=None if number else frames_out))
        on_repeat()
    accuracy = _accuracy(load, *labelled) if labelled else None
    return Report("replay", environment, [Case(load_of(load), rounds, copies)], accuracy=accuracy)


def _accuracy(load: Load, images: Path, annotations: Path) -> Accuracy:
    """Of the very engine that was measured."""
    found = measured(
        "evaluate",
        [],
        {
            "model": load.model or demo_model(),
            "images": images,
            "annotations": annotations,
            "labels": load.labels,
            "backend": load.backend,
            "precision": load.precision,
            "max-batch": load.max_batch,
            "level": load.builder_level,
            "cache": load.cache,
        },
    )
    return Accuracy(found["ap"], found["ap50"], found["images"])
