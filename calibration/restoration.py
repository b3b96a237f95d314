"""Restores layers to float until a model keeps to its budget, measured on pictures that give no rulings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from calibration.evaluator import Evaluator
from calibration.outcome import Trial
from calibration.sensitivity import Cost, layers_to_restore
from detectors.model import digest_of
from detectors.port import Options

_MAX_COSTS = 20

ProgressTask = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
"""Begins a task by name with a number of steps, 0 if unknown; yields a function to call after each step."""


class Restoration:
    """Restores layers to float where a model falls short of its aim.

    Args:
        evaluator: on the backend that will run the model; None if nothing may be restored.
        max_float: largest share of the layers that may be float.
        remove_engines: removes engines built from files with these SHA-256.
    """

    def __init__(
        self,
        evaluator: Evaluator | None,
        max_float: float,
        progress: ProgressTask,
        remove_engines: Callable[[set[str]], None],
    ) -> None:
        self._evaluator, self._max_float, self._progress, self._remove_engines = (
            evaluator,
            max_float,
            progress,
            remove_engines,
        )

    @property
    def aim(self) -> float | None:
        """The value to reach by restoring layers; None if none may be restored."""
        return self._evaluator.aim if self._evaluator and self._max_float else None

    def falls_short(self, options: Options) -> bool:
        """Whether layers should be restored."""
        return self._evaluator is not None and self.aim is not None and self._evaluator.value(options) < self.aim

    def restore(
        self,
        trial: Trial,
        ranked: Sequence[Cost],
        options_for: Callable[[Sequence[str]], Options],
        *,
        all_first: bool = False,
    ) -> Trial:
        """The trial with its most sensitive layers in float: the fewest that reach the aim, or as many as allowed.

        Args:
            options_for: writes the model with these layers in float; returns options to open it.
        """
        evaluator, limit = self._evaluator, int(self._max_float * trial.layers)
        if evaluator is None or not limit:
            return trial
        tried: set[str] = set()
        with self._progress(f"{trial.precision.upper()}: restoring sensitive layers", 0) as advance:

            def score(layers: Sequence[str]) -> float:
                advance()
                options = options_for(layers)
                tried.add(digest_of(options.path))
                return evaluator.value(options)

            count, steps = layers_to_restore(ranked[:limit], score, evaluator.aim, all_first=all_first)
        floats = [cost.layer for cost in ranked[: limit if count is None else count]]
        self._remove_engines(tried - {digest_of(options_for(floats).path)})
        return replace(trial, float_layers=floats, steps=steps, costs=list(ranked[:_MAX_COSTS]))
