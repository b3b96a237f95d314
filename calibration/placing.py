"""The fastest placement of INT8 on the device at hand, found by trying: each engine is timed, and so are its layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Protocol, cast, runtime_checkable

import onnx

from calibration.graph import Graph
from calibration.judge import Open
from calibration.kernel_times import by_layer, slower
from calibration.placement import KINDS, Placement
from calibration.quantize import targets
from detectors.model import sha256
from detectors.port import Detector, Options

_TURNS, _REPLAYS = 9, 40
_ROUNDS = 3
_NOTABLE = 0.0005  # of the whole; less is noise


class _Kernel(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def milliseconds(self) -> float | None: ...


@runtime_checkable
class Timed(Protocol):
    """A detector that tells what each of its model's kernels takes."""

    def layers(self, runs: int = ...) -> Sequence[_Kernel]: ...


class _Replays(Protocol):
    def replay(self, size: int, times: int) -> float: ...


@dataclass(frozen=True)
class Tried:
    """One placement.

    Attributes:
        milliseconds: of a full batch, the model alone; None where nobody searched.
    """

    placement: Placement
    milliseconds: float | None


class Placing:
    """A search. What was built is found in the engines' folder by whoever searches again after a break.

    Args:
        float_model: its nodes have names.
        options: of the float model, as it will run.
        made: where the tried file is written.
        advance: called after each try.

    Attributes:
        half_ms: of a full batch in FP16, the model alone; None before a search.
    """

    def __init__(
        self, open_model: Open, float_model: onnx.ModelProto, options: Options, made: Path, advance: Callable[[], None]
    ) -> None:
        self._open, self._float, self._made, self._advance = open_model, float_model, made, advance
        self._options = replace(options, lanes=1)
        self._digests: dict[Placement, str] = {}
        self.half_ms: float | None = None

    def search(self, quantised: onnx.ModelProto) -> list[Tried]:
        """All that were tried, the fastest first.

        Both kinds as they are; then the faster one without the layers that take longer than in FP16, and again
        without those that do then, as long as that helps.

        Args:
            quantised: as `calibration.quantize` makes it.
        """
        half, self.half_ms = self._timed(replace(self._options, precision="fp16"))
        layers = {Graph.layer_of(node) for node in targets(self._float)}
        tried: list[Tried] = []
        times: dict[Placement, dict[str, float]] = {}

        def look(placement: Placement) -> Tried:
            onnx.save(placement.of(quantised), str(self._made))
            self._digests[placement] = sha256(self._made.read_bytes())
            times[placement], took = self._timed(replace(self._options, path=self._made))
            tried.append(Tried(placement, took))
            return tried[-1]

        best = min((look(Placement(kind)) for kind in KINDS), key=_speed)
        for _ in range(_ROUNDS):
            worse = slower(half, times[best.placement], _NOTABLE * _speed(best)) & layers
            if not worse - best.placement.floats:
                break
            other = look(replace(best.placement, floats=best.placement.floats | worse))
            if _speed(other) >= _speed(best):
                break
            best = other
        return sorted(tried, key=_speed)

    def losers(self, best: Placement) -> set[str]:
        """SHA-256 of the files of all others."""
        return {digest for placement, digest in self._digests.items() if placement != best} - {self._digests[best]}

    def _timed(self, options: Options) -> tuple[dict[str, float], float]:
        """Milliseconds of each layer, and of a full batch."""
        with closing(self._open(options)) as detector:
            kernels = cast("Timed", detector).layers()
            took = _replayed(detector)
        self._advance()
        return by_layer(self._float, ((row.name, row.milliseconds or 0.0) for row in kernels)), took


def _replayed(detector: Detector) -> float:
    batch = detector.info.max_batch
    with closing(detector.lane()) as lane:
        replay = cast("_Replays", lane).replay
        replay(batch, _REPLAYS)
        return 1e3 * median(replay(batch, _REPLAYS) / _REPLAYS for _ in range(_TURNS))


def _speed(tried: Tried) -> float:
    return tried.milliseconds or 0.0
