"""Whether this machine can do what the configuration asks: what each resource has to do, and which is full first.

Limits are measured here and now, on the sources' own pictures; a figure for another machine would be a guess. Each is
measured alone: a detector on the CPU takes its cores from decoding.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import cycle, islice
from time import monotonic

from detectors.port import Detector, Image

_SECONDS = 1.0


@dataclass(frozen=True)
class Demand:
    """What one source asks for.

    Attributes:
        fps: frames a second that come in.
        wanted_fps: of them, those to be looked at.
        decode_s: seconds of one core for each that comes in; 0 where the GPU decodes.
        decoder: share of the GPU's decoder.
        memory: bytes of the GPU.
        frame_bytes: of a frame that crosses the bus to be looked at; 0 where it is on the GPU already.
    """

    fps: float
    wanted_fps: float
    decode_s: float
    decoder: float = 0.0
    memory: int = 0
    frame_bytes: int = 0


@dataclass(frozen=True)
class Limits:
    """What the machine can do.

    Attributes:
        images_per_s: of the detector.
        cores: of the CPU.
        memory: bytes of the GPU that may be used, and of them those that are used whatever the sources.
        bus: bytes a second to the GPU; None where there is none, or it does not tell.
        sessions: of the GPU's decoder at once; None where it does not decode.
    """

    images_per_s: float
    cores: int
    memory: tuple[int, int] | None = None
    bus: float | None = None
    sessions: int | None = None


@dataclass(frozen=True)
class Load:
    """One resource.

    Attributes:
        needed, limit: in `unit`.
        fixed: what of `needed` is needed whatever the sources.
    """

    name: str
    needed: float
    limit: float
    unit: str
    fixed: float = 0.0

    @property
    def share(self) -> float:
        """1 is full."""
        return self.needed / self.limit

    @property
    def room(self) -> float:
        """How many times the sources there are fit."""
        per_sources = self.needed - self.fixed
        return (self.limit - self.fixed) / per_sources if per_sources > 0 else float("inf")


def loads(demands: Sequence[Demand], limits: Limits) -> list[Load]:
    """What each resource has to do, the first to be full first; those of a GPU where one is asked for."""
    rows = [
        Load("detector", sum(demand.wanted_fps for demand in demands), limits.images_per_s, "frames/s"),
        Load("decoding on the CPU", sum(demand.fps * demand.decode_s for demand in demands), limits.cores, "cores"),
    ]
    if decoder := sum(demand.decoder for demand in demands):
        rows.append(Load("the GPU's decoder", decoder * 100, 100, "%"))
    if limits.sessions and (decoding := sum(demand.decoder > 0 for demand in demands)):
        rows.append(Load("the GPU's decoder sessions", decoding, limits.sessions, "sources"))
    if limits.memory:
        most, fixed = (size / (1 << 20) for size in limits.memory)
        memory = sum(demand.memory for demand in demands) / (1 << 20)
        rows.append(Load("the GPU's memory", fixed + memory, most, "MiB", fixed))
    if limits.bus:
        crossing = sum(demand.wanted_fps * demand.frame_bytes for demand in demands)
        rows.append(Load("the bus to the GPU", crossing / 1e6, limits.bus / 1e6, "MB/s"))
    return sorted(rows, key=lambda load: load.room)


def verdict(rows: Sequence[Load], sources: int) -> str:
    """The resource that is full first, in words, and how many sources like these it has room for."""
    first = rows[0]
    fits = int(sources * first.room + 1e-9) if first.room < float("inf") else sources
    if first.room < 1:
        return (
            f"{first.name}: asked for {first.share:.1f} times what it can do, enough for about {fits} of {sources} "
            f"such sources at their full rate. {_CONSEQUENCES.get(first.name, _SUPERSEDED)}"
        )
    return f"{first.name}: full first, at {first.share:.0%} now; about {fits - sources} more such sources fit"


_SUPERSEDED = (
    "Live frames beyond that will be dropped as superseded, fairly; lower max_fps, take a smaller model, or a faster "
    "machine"
)
_CONSEQUENCES = {
    "the GPU's decoder sessions": "Those beyond will be decoded on the CPU, or be down with decode: nvdec; take "
    "another GPU for them",
    "the GPU's memory": "Those beyond will be decoded on the CPU, or be down with decode: nvdec; use smaller batches, "
    "fewer lanes, or a larger gpu.memory_limit_mib",
    "the GPU's decoder": "Pictures beyond that will be left out undecoded: late, or with admission: degrade beforehand,"
    " the same share of each source. Set decode: cpu for some, or ask cameras for a lower rate or size",
}


def measure_detector(detector: Detector, images: Sequence[Image], seconds: float = _SECONDS) -> float:
    """Frames a second of all lanes together, in full batches of these pictures in turns.

    Raises:
        DetectorError: a lane failed.
    """
    batch = list(islice(cycle(images), detector.info.max_batch))
    count = detector.info.lanes
    started, stop = threading.Barrier(count + 1), threading.Event()

    def work() -> int:
        done = 0
        try:
            with closing(detector.lane()) as lane:
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
        lanes = [pool.submit(work) for _ in range(count)]
        with suppress(threading.BrokenBarrierError):  # then a lane has something to say
            started.wait()
        began = monotonic()
        stop.wait(seconds if not started.broken else 0)
        stop.set()
        done = sum(lane.result() for lane in sorted(lanes, key=_only_waited))
    # Batches that had begun are counted, and so is the time they took.
    return done / (monotonic() - began)


def _only_waited(lane: Future[int]) -> bool:
    """Lanes that failed of themselves come first: their reason is the one to tell."""
    return isinstance(lane.exception(), threading.BrokenBarrierError)


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0))
