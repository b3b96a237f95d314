"""Whether this machine can do what the configuration asks: the load of each resource, and the bottleneck.

Limits are measured on this machine, with the sources' own pictures. Each limit is measured alone: a detector on the CPU
also takes cores from decoding.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import cycle, islice
from time import monotonic

from detectors.port import Detector, Image, Size, lane_at

_SECONDS = 1.0


@dataclass(frozen=True)
class Demand:
    """Demand of one source.

    Attributes:
        fps: frames a second of the source.
        wanted_fps: frames a second to be detected.
        decode_s: CPU seconds for decoding a frame; 0 if the GPU decodes.
        decoder: share of the GPU's decoder.
        memory: bytes of the GPU.
        frame_bytes: bytes that cross the bus for a frame; 0 if it is on the GPU already.
        pictures: pictures that the detector sees for a frame, in pictures of the model's own input size.
    """

    fps: float
    wanted_fps: float
    decode_s: float
    decoder: float = 0.0
    memory: int = 0
    frame_bytes: int = 0
    pictures: float = 1


@dataclass(frozen=True)
class MachineLimits:
    """Limits of this machine.

    Attributes:
        images_per_s: of the detector.
        cores: of the CPU.
        memory: bytes of the GPU that may be used, and bytes that are used without any source.
        bus: bytes a second to the GPU; None if unknown.
        sessions: decoder sessions of the GPU; None if it does not decode.
    """

    images_per_s: float
    cores: int
    memory: tuple[int, int] | None = None
    bus: float | None = None
    sessions: int | None = None


@dataclass(frozen=True)
class Load:
    """Load of one resource.

    Attributes:
        needed, limit: in `unit`.
        fixed: the part of `needed` that does not depend on the sources.
    """

    name: str
    needed: float
    limit: float
    unit: str
    fixed: float = 0.0

    @property
    def share(self) -> float:
        """Utilisation; 1 is full."""
        return self.needed / self.limit

    @property
    def room(self) -> float:
        """The number of times that all sources would fit."""
        per_sources = self.needed - self.fixed
        return (self.limit - self.fixed) / per_sources if per_sources > 0 else float("inf")


def loads(demands: Sequence[Demand], limits: MachineLimits) -> list[Load]:
    """The load of each resource, the bottleneck first; resources of a GPU only where they are used."""
    images = sum(demand.wanted_fps * demand.pictures for demand in demands)
    unit = "frames/s" if all(demand.pictures == 1 for demand in demands) else "pictures/s"
    rows = [
        Load("detector", images, limits.images_per_s, unit),
        Load("decoding on the CPU", sum(demand.fps * demand.decode_s for demand in demands), limits.cores, "cores"),
    ]
    if decoder := sum(demand.decoder for demand in demands):
        rows.append(Load("the GPU's decoder", decoder * 100, 100, "%"))
    if limits.sessions and (decoding := sum(demand.decoder > 0 for demand in demands)):
        rows.append(Load("the GPU's decoder sessions", decoding, limits.sessions, "sources"))
    if limits.memory:
        usable, fixed = (size / (1 << 20) for size in limits.memory)
        memory = sum(demand.memory for demand in demands) / (1 << 20)
        rows.append(Load("the GPU's memory", fixed + memory, usable, "MiB", fixed))
    if limits.bus:
        crossing = sum(demand.wanted_fps * demand.frame_bytes for demand in demands)
        rows.append(Load("the bus to the GPU", crossing / 1e6, limits.bus / 1e6, "MB/s"))
    return sorted(rows, key=lambda load: load.room)


def bottleneck(rows: Sequence[Load], sources: int) -> str:
    """A sentence about the bottleneck, and the number of such sources that it allows."""
    first = rows[0]
    fits = int(sources * first.room + 1e-9) if first.room < float("inf") else sources
    if first.room < 1:
        return (
            f"{first.name}: asked for {first.share:.1f} times what it can do, enough for about {fits} of {sources} "
            f"such sources at their full rate. {_CONSEQUENCES.get(first.name, _SUPERSEDED)}"
        )
    return f"{first.name}: full first, at {first.share:.0%} now; about {fits - sources} more such sources fit"


_SUPERSEDED = (
    "Live frames beyond that will be dropped as superseded, fairly; lower max_fps, use a smaller model, or a faster "
    "machine"
)
_CONSEQUENCES = {
    "the GPU's decoder sessions": "Those beyond will be decoded on the CPU, or be down with decode: nvdec; use "
    "another GPU for them",
    "the GPU's memory": "Those beyond will be decoded on the CPU, or be down with decode: nvdec; use smaller batches, "
    "fewer lanes, or a larger gpu.memory_limit_mib",
    "the GPU's decoder": "Pictures beyond that will not be decoded: dropped as late, or with admission: degrade, "
    " the same share of each source. Set decode: cpu for some, or ask cameras for a lower rate or size",
}


@dataclass(frozen=True)
class PictureCosts:
    """The cost of a picture at an input size, in pictures of the model's own size: as measured, or by its pixels.

    Attributes:
        rates: pictures a second at the measured sizes; the own size is one of them.
    """

    own: Size
    rates: Mapping[Size, float]

    def __call__(self, size: Size) -> float:
        if size in self.rates:
            return self.rates[self.own] / self.rates[size]
        return size[0] * size[1] / (self.own[0] * self.own[1])


@dataclass(frozen=True)
class SourceCosts:
    """The cost of a frame of a source, for all models that look at it, in pictures of the first model's own size. All
    run on one machine, so their times add up.

    Attributes:
        models: measured, by name.
        models_of: names of the models that look at a source.
    """

    models: Mapping[str, PictureCosts]
    models_of: Callable[[str], Iterable[str]]

    @property
    def rate(self) -> float:
        """Pictures a second of the first model at its own size."""
        first = next(iter(self.models.values()))
        return first.rates[first.own]

    @property
    def weights(self) -> dict[str, float]:
        """The cost of a picture for each model at its own size, in pictures of the first."""
        return {name: self.rate / row.rates[row.own] for name, row in self.models.items()}

    def __call__(self, source: str, size: Size | None) -> float:
        """
        Args:
            size: of the input; None for the own size of each model.
        """
        weights = self.weights
        rows = [(weights[name], self.models[name]) for name in self.models_of(source)]
        return sum(weight * (row(size) if size else 1) for weight, row in rows)


def measure_sizes(detector: Detector, images: Sequence[Image]) -> PictureCosts:
    """Measure the detector at each input size; see `measure_detector`."""
    own = detector.info.input_size
    rates = {own: measure_detector(detector, images)}
    for size in detector.info.further_sizes:
        rates[size] = measure_detector(detector, images, size=size)
    return PictureCosts(own, rates)


def measure_detector(
    detector: Detector, images: Sequence[Image], seconds: float = _SECONDS, size: Size | None = None
) -> float:
    """Frames a second of all lanes together, in full batches of these pictures.

    Args:
        size: of the input; None for the model's own.

    Raises:
        DetectorError: a lane failed.
    """
    batch = list(islice(cycle(images), detector.info.max_batch))
    count = detector.info.lanes
    started, stop = threading.Barrier(count + 1), threading.Event()

    def work() -> int:
        done = 0
        try:
            with closing(detector.lane()) as own:
                lane = lane_at(own, size)
                lane.detect(batch)
                started.wait()
                while not stop.is_set():
                    lane.detect(batch)
                    done += len(batch)
        except BaseException:
            started.abort()
            raise
        return done

    with ThreadPoolExecutor(count, thread_name_prefix="measure") as pool:
        try:
            lanes = [pool.submit(work) for _ in range(count)]
            with suppress(threading.BrokenBarrierError):  # a lane has failed
                started.wait()
            began = monotonic()
            stop.wait(seconds if not started.broken else 0)
        except BaseException:  # such as Ctrl-C: the pool waits for lanes
            started.abort()
            raise
        finally:
            stop.set()
        done = sum(lane.result() for lane in sorted(lanes, key=_failed_with_others))
    # Batches that had begun are counted, with the time that they took.
    return done / (monotonic() - began)


def _failed_with_others(lane: Future[int]) -> bool:
    """Sorts lanes that failed by themselves first: they have the reason."""
    return isinstance(lane.exception(), threading.BrokenBarrierError)


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))
