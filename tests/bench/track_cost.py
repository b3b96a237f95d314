"""`python -m tests.bench tracks`: boxes of analysed pictures from lanes through the ring into files, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from time import thread_time

import numpy as np

from daemon.analytics.grouping import Grouping
from daemon.analytics.loops import PYTHON
from daemon.analytics.source_tracks import SourceTracks
from daemon.analytics.tracker import TrackSettings, track
from daemon.clock import SystemClock
from daemon.pipeline.frames import Frame, FrameInfo
from daemon.pipeline.outbox import Served
from daemon.recording.records import PacketRecord
from daemon.recording.ring import UNIT_BYTES, Ring, RingReader
from daemon.recording.store import Store
from daemon.recording.tracks.codec import decode, encode
from daemon.recording.tracks.intake import AT_ONCE
from daemon.recording.tracks.records import Handed, TracksHead, decode_message
from daemon.recording.tracks.stored_frames import StoredFrame, frames_of
from daemon.recording.tracks.tap import TrackTap
from daemon.recording.tracks.track_file import TrackFile
from detectors.detections import Detections
from detectors.port import HostImage
from lookout.messages import FrameClock, Model
from tests.bench.moving import HEIGHT, WIDTH, MovingObjects

_SETTINGS = TrackSettings(0.1, 0.25, 0.25, 1_000_000_000, 3_000_000_000, 3)
SERVED = Served(Model("none", "0" * 12, "none", "none"), ("object",))
_CLOCK, _PICTURE = FrameClock("arrival"), HostImage(np.zeros((1, 1, 3), np.uint8))
_BLOCK = 60  # frames


@dataclass(frozen=True)
class TracksOptions:
    """Options of the measurement; see `python -m tests.bench tracks --help`."""

    objects: int = 10
    batch: int = 16
    seconds: float = 10.0
    fps: float = 30.0
    seed: int = 0


@dataclass(frozen=True)
class TracksFound:
    """
    Attributes:
        hand_us: CPU of a frame in the lane, under the daemon's lock.
        take_us, write_us: likewise, in the recorder: out of the ring, and into a file.
        read_us: of a frame that is read again.
        boxes: in a picture.
        ring_bytes: of a frame.
        box_bytes: of a box in a file, with its share of all else.
        kbit_per_s: of a source.
    """

    hand_us: float
    take_us: float
    write_us: float
    read_us: float
    boxes: float
    ring_bytes: float
    box_bytes: float
    kbit_per_s: float


def tracks(options: TracksOptions) -> TracksFound:
    """Run and measure."""
    count = round(options.seconds * options.fps) * options.batch
    with ExitStack() as stack:
        ring = stack.enter_context(closing(Ring("tracks", count * 8192 // UNIT_BYTES * UNIT_BYTES + (1 << 20))))
        tap = TrackTap({"main": ring}, SystemClock())
        tap.use({"main": {f"cam-{number}" for number in range(options.batch)}})
        hand_us, boxes = _hand(tap, options)
        hand_us /= count
        ring_bytes = ring.account.bytes / count
        reader = stack.enter_context(closing(RingReader(ring.fd)))
        taken: list[StoredFrame] = []
        take_us = _timed(partial(_take, reader, taken)) / count
        folder = Path(stack.enter_context(TemporaryDirectory()))
        store = stack.enter_context(closing(Store.open(folder / "store")))
        by_source = [list(rows) for _, rows in groupby(sorted(taken, key=_source_of), key=_source_of)]
        files = [stack.enter_context(closing(_file(store, rows[0].info.source))) for rows in by_source]
        write_us = _timed(partial(_write, files, by_source)) / count
        size = sum(path.stat().st_size for path in folder.rglob("*.trk"))
        blocks = [encode(rows[begin : begin + _BLOCK]) for rows in by_source for begin in range(0, len(rows), _BLOCK)]
        read_us = _timed(lambda: [[*decode(block, {1: SERVED})] for block in blocks]) / count
    kbit_per_s = size * 8e-3 / options.seconds / len(by_source)
    return TracksFound(hand_us, take_us, write_us, read_us, boxes / count, ring_bytes, size / boxes, kbit_per_s)


def batches(
    options: TracksOptions, names: Sequence[str] = (), session: str = "5e551011"
) -> Iterator[tuple[list[Frame], list[Detections]]]:
    """The tracked boxes of one picture of each source, picture by picture."""
    names = names or [f"cam-{place}" for place in range(options.batch)]
    random, grouping = np.random.default_rng(options.seed), Grouping(SERVED.labels, ())
    scenes = [MovingObjects(random, options.objects) for _ in names]
    states, settings = [SourceTracks() for _ in scenes], [_SETTINGS] * len(scenes)
    for number in range(round(options.seconds * options.fps)):
        at = round(number / options.fps * 1e9)
        infos = [FrameInfo(name, session, number, at, at, at, _CLOCK, 0, WIDTH, HEIGHT) for name in names]
        found, _ = track(PYTHON.step, infos, [scene.boxes(at / 1e9) for scene in scenes], states, settings, grouping)
        yield [Frame(info, _PICTURE) for info in infos], found


def _timed(work: Callable[[], object]) -> float:
    """CPU, us."""
    begun = thread_time()
    work()
    return (thread_time() - begun) * 1e6


def _hand(tap: TrackTap, options: TracksOptions) -> tuple[float, int]:
    """CPU of handing all over, us, and the number of boxes."""
    used, boxes = 0.0, 0
    for frames, found in batches(options):
        used += _timed(partial(tap.on_batch, frames, found, SERVED))
        boxes += sum(len(one.confidence) for one in found)
    return used, boxes


def _take(reader: RingReader, taken: list[StoredFrame]) -> None:
    told = []
    for record in reader.read(0):
        if isinstance(record, PacketRecord):
            message = decode_message(record.data)
            assert isinstance(message, Handed)
            told.append(message)
    for first in range(0, len(told), AT_ONCE):
        for frames in frames_of(told[first : first + AT_ONCE]):
            taken += frames


def _write(files: Sequence[TrackFile], by_source: Sequence[Sequence[StoredFrame]]) -> None:
    for file, rows in zip(files, by_source):
        for begin in range(0, len(rows), _BLOCK):
            file.append(rows[begin : begin + _BLOCK], {1: SERVED})


def _file(store: Store, source: str) -> TrackFile:
    video = f"{source}/2026-11-27/000000.000Z-0.mp4"
    path = store.path / video
    path.parent.mkdir(parents=True)
    path.touch()
    head = TracksHead(video="", source=source, instance="", same_stream=True, tracking=None)
    file = TrackFile.open(store, video, head)
    assert file is not None
    return file


def _source_of(row: StoredFrame) -> str:
    return row.info.source
