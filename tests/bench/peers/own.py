"""Lookout's own engine, or a Triton server through Lookout, beside the others.

`python -m tests.bench.peers.own FOLDER` is the process. FOLDER has job.json and pictures.npz.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from daemon.bench.engine import Replays
from daemon.config.root import LogConfig
from daemon.log import logging
from detectors.factory import Backend, availability, open_detector
from detectors.heads.layout import Outputs
from detectors.port import Detector, DetectorError, HostImage, Image, Options
from detectors.trt.products import PRODUCTS
from tests.bench.peers.names import OWN
from tests.bench.peers.program import Arrays, Engine, NotRunError, answer, load


class _HasRaw(Protocol):
    """A lane that gives raw outputs of a picture."""

    def raw(self, image: Image) -> Outputs: ...


class OwnEngine:
    """An opened model of Lookout; implements `Engine`."""

    def __init__(self, detector: Detector, pictures: Sequence[HostImage]) -> None:
        info = detector.info
        with ExitStack() as undo:
            undo.callback(detector.close)
            lane = detector.lane()
            undo.callback(lane.close)
            self._undo = undo.pop_all()
        self._lane, self._pictures = lane, list(pictures)
        self.precision, self.batch = info.precision, min(info.max_batch, len(pictures))
        module = PRODUCTS[info.backend].module if info.backend in PRODUCTS else ""
        self.version = str(getattr(sys.modules.get(module), "__version__", ""))
        self.note = info.transport or ""
        if self.batch < len(pictures):
            self.note = f"batches of {self.batch}: {'; '.join(info.notes)}"
        replays = isinstance(lane, Replays)
        self.seconds: Callable[[int], float] = self._replayed if replays else self._inferred

    def _replayed(self, times: int) -> float:
        return cast("Replays", self._lane).replay(self.batch, times)

    def _inferred(self, times: int) -> float:
        """Without the time to prepare pictures and to decode outputs."""
        return sum(self._lane.detect(self._pictures[: self.batch])[1].infer for _ in range(times)) / 1e9

    def outputs(self, rows: Sequence[int]) -> Arrays:
        lane = cast("_HasRaw", self._lane)
        found = [lane.raw(self._pictures[row]) for row in rows]
        return {name: np.stack([one[name] for one in found]) for name in found[0]}

    def close(self) -> None:
        self._undo.close()


def main() -> None:
    folder = Path(sys.argv[1])
    pictures = [HostImage(np.ascontiguousarray(picture)) for picture in load(folder / "pictures.npz")["pictures"]]

    def make(job: dict[str, Any]) -> Engine:
        backend = cast("Backend", "trt" if job["peer"] == OWN else job["peer"])
        for row in availability():
            if row.backend == backend and not row.available:
                raise NotRunError(row.reason)
        try:
            return OwnEngine(open_detector(backend, _options(job["options"])), pictures)
        except DetectorError as error:
            raise NotRunError(str(error)) from error

    with logging(LogConfig(level="error", format="console")):
        answer(folder, make)


def _options(values: dict[str, Any]) -> Options:
    """Options from JSON."""
    cache = values["cache"]
    return Options(**{**values, "path": Path(values["path"]), "cache": Path(cache) if cache else None})


if __name__ == "__main__":
    main()
