"""What a model needs to keep to the budget, found out on pictures that do not judge it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from calibration.judge import Judge
from calibration.outcome import Trial
from calibration.sensitivity import Cost, restore
from detectors.model import sha256
from detectors.port import Options

_KEPT_COSTS = 20

Stage = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
"""Says what begins and of how many steps, 0 if nobody knows; what it gives is called after each."""


class Steering:
    """Puts layers back to float where a model falls short.

    Args:
        judge: of the pictures that steer, on the backend that will run the model; None where all pictures judge, and
            nothing is steered.
        most_float: of the layers, the share that may stay in float.
        forget: throws away what a backend built of files with these SHA-256.
    """

    def __init__(
        self, judge: Judge | None, most_float: float, stage: Stage, forget: Callable[[set[str]], None]
    ) -> None:
        self._judge, self._most, self._stage, self._forget = judge, most_float, stage, forget

    @property
    def aim(self) -> float | None:
        """The value that layers go back to float for; None where none may."""
        return self._judge.aim if self._judge and self._most else None

    def falls_short(self, options: Options) -> bool:
        """Whether layers should go back to float, if any may."""
        return self._judge is not None and self.aim is not None and self._judge.value(options) < self.aim

    def mended(
        self,
        trial: Trial,
        ranked: Sequence[Cost],
        opened: Callable[[Sequence[str]], Options],
        *,
        all_first: bool = False,
    ) -> Trial:
        """The dearest layers back to float, as few as will do, or as many as may.

        Args:
            opened: writes the model with these layers in float, and says how to open it.
        """
        judge, most = self._judge, int(self._most * trial.layers)
        if judge is None or not most:
            return trial
        tried: set[str] = set()
        with self._stage(f"{trial.precision.upper()}: dear layers back to float", 0) as advance:

            def score(layers: Sequence[str]) -> float:
                advance()
                options = opened(layers)
                tried.add(sha256(options.path.read_bytes()))
                return judge.value(options)

            count, steps = restore(ranked[:most], score, judge.aim, all_first=all_first)
        floats = [cost.layer for cost in ranked[: most if count is None else count]]
        self._forget(tried - {sha256(opened(floats).path.read_bytes())})
        return replace(trial, float_layers=floats, steps=steps, costs=list(ranked[:_KEPT_COSTS]))
