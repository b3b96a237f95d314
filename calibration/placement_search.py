"""Search for the fastest placement of INT8 on this device: builds engines and times them and their layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Protocol, cast, runtime_checkable

import onnx

from calibration.evaluator import OpenDetector
from calibration.graph import Graph
from calibration.kernel_times import by_layer, slower
from calibration.placement import KINDS, Placement
from calibration.quantize import targets
from detectors.model import digest_of
from detectors.port import Detector, Options

_TURNS, _REPLAYS = 9, 40
_ROUNDS = 3
_MIN_SAVING = 0.0005  # share of the batch time; smaller differences are noise


class _Kernel(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def milliseconds(self) -> float | None: ...


@runtime_checkable
class KernelTimes(Protocol):
    """A detector that reports the time of each kernel."""

    def layers(self, runs: int = ...) -> Sequence[_Kernel]: ...


class _Replays(Protocol):
    def replay(self, size: int, times: int) -> float: ...


@dataclass(frozen=True)
class PlacementTrial:
    """A tried placement.

    Attributes:
        milliseconds: time of a full batch, the model alone; None without a search.
    """

    placement: Placement
    milliseconds: float | None


class PlacementSearch:
    """A search. A repeated search finds the engines it built before in the engine cache.

    Args:
        float_model: its nodes are named.
        options: of the float model, as it will run.
        path: path for the tried file.
        advance: called after each try.

    Attributes:
        half_ms: time of a full batch in FP16, the model alone; None before a search.
    """

    def __init__(
        self,
        open_model: OpenDetector,
        float_model: onnx.ModelProto,
        options: Options,
        path: Path,
        advance: Callable[[], None],
    ) -> None:
        self._open, self._float, self._path, self._advance = open_model, float_model, path, advance
        self._options = replace(options, lanes=1)
        self._digests: dict[Placement, str] = {}
        self.half_ms: float | None = None

    def search(self, quantised: onnx.ModelProto) -> list[PlacementTrial]:
        """The tried placements, the fastest first.

        Both kinds are tried; then the faster one without the layers that are slower than in FP16, while that helps.

        Args:
            quantised: as `calibration.quantize` makes it.
        """
        half, self.half_ms = self._measure(replace(self._options, precision="fp16"))
        layers = {Graph.layer_of(node) for node in targets(self._float)}
        tried: list[PlacementTrial] = []
        times: dict[Placement, dict[str, float]] = {}

        def try_placement(placement: Placement) -> PlacementTrial:
            onnx.save(placement.of(quantised), str(self._path))
            self._digests[placement] = digest_of(self._path)
            times[placement], took = self._measure(replace(self._options, path=self._path))
            tried.append(PlacementTrial(placement, took))
            return tried[-1]

        best = min((try_placement(Placement(kind)) for kind in KINDS), key=_speed)
        for _ in range(_ROUNDS):
            worse = slower(half, times[best.placement], _MIN_SAVING * _speed(best)) & layers
            if not worse - best.placement.floats:
                break
            other = try_placement(replace(best.placement, floats=best.placement.floats | worse))
            if _speed(other) >= _speed(best):
                break
            best = other
        return sorted(tried, key=_speed)

    def rejected(self, best: Placement) -> set[str]:
        """SHA-256 of the files of all other placements."""
        return {digest for placement, digest in self._digests.items() if placement != best} - {self._digests[best]}

    def _measure(self, options: Options) -> tuple[dict[str, float], float]:
        """Milliseconds of each layer, and of a full batch."""
        with closing(self._open(options)) as detector:
            kernels = cast("KernelTimes", detector).layers()
            took = _replayed(detector)
        self._advance()
        return by_layer(self._float, ((row.name, row.milliseconds or 0.0) for row in kernels)), took


def _replayed(detector: Detector) -> float:
    batch = detector.info.max_batch
    with closing(detector.lane()) as lane:
        replay = cast("_Replays", lane).replay
        replay(batch, _REPLAYS)
        return 1e3 * median(replay(batch, _REPLAYS) / _REPLAYS for _ in range(_TURNS))


def _speed(tried: PlacementTrial) -> float:
    return tried.milliseconds or 0.0
