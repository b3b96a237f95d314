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
        decode_s: seconds of one core for each that comes in.
    """

    fps: float
    wanted_fps: float
    decode_s: float


@dataclass(frozen=True)
class Load:
    """One resource.

    Attributes:
        needed, limit: in `unit`.
    """

    name: str
    needed: float
    limit: float
    unit: str

    @property
    def share(self) -> float:
        """1 is full."""
        return self.needed / self.limit


def loads(demands: Sequence[Demand], images_per_s: float, cores: int) -> list[Load]:
    """What the detector and the CPU have to do, the fullest first."""
    rows = [
        Load("detector", sum(demand.wanted_fps for demand in demands), images_per_s, "frames/s"),
        Load("decoding on the CPU", sum(demand.fps * demand.decode_s for demand in demands), cores, "cores"),
    ]
    return sorted(rows, key=lambda load: load.share, reverse=True)


def verdict(rows: Sequence[Load], sources: int) -> str:
    """The fullest resource in words, and how many sources like these it has room for."""
    fullest = rows[0]
    if fullest.share > 1:
        fits = int(sources / fullest.share)
        return (
            f"{fullest.name}: asked for {fullest.share:.1f} times what it can do, enough for about {fits} of {sources} "
            "such sources at their full rate. Live frames beyond that will be dropped as superseded, fairly; lower "
            "max_fps, take a smaller model, or a faster machine"
        )
    more = int(sources / fullest.share) - sources if fullest.share > 0 else 0
    return f"{fullest.name}: full first, at {fullest.share:.0%} now; about {more} more such sources fit"


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
