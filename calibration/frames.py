"""Calibration frames and held-out frames: seeded, spread over sources and time, written with their hashes."""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import cv2
import msgspec
import numpy as np
import numpy.typing as npt

from detectors.pictures import read_picture
from detectors.port import DetectorError

MIN_FRAMES = 32
_CANDIDATES_PER_FRAME = 3
_THUMBNAIL_SIDE = 32
_MIN_DISTANCE = 2.0  # of 255: RMS difference of thumbnails; frames below it show the same
_MIN_CONTRAST = 3.0  # of 255: standard deviation; a frame below it shows nothing
_QUALITY = 95
_BLOCK_S = 10.0  # frames of one source within a block count as one scene
_MIN_SOURCES_TO_HOLD_OUT = 3  # with fewer, the last third of each source is held out
PHOTOS, BLOCKS = "photos", f"blocks of {_BLOCK_S:.0f} s"
_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")

Bgr = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class SourceFrame:
    """A frame of a source.

    Attributes:
        source: its name.
        index: number of the frame in the source, from 0.
        bgr: (height, width, 3) uint8.
        at: seconds into the source; None for a photo.
        file: the photo's file; None for a frame of a video.
    """

    source: str
    index: int
    bgr: Bgr
    at: float | None = None
    file: Path | None = None

    @property
    def group(self) -> str:
        """The scene: ten seconds of the source; a photo is a scene of its own."""
        return f"{self.source}/{self.index}" if self.at is None else f"{self.source}/{int(self.at // _BLOCK_S)}"


class Entry(msgspec.Struct, frozen=True):
    """A selected frame. Held-out frames are for comparison, not for calibration.

    Attributes:
        group: the frame's scene, see `SourceFrame.group`.
    """

    file: str
    sha256: str
    source: str
    index: int
    held_out: bool
    group: str = ""
    photo: bool = False


class FrameSet(msgspec.Struct, frozen=True):
    """The selected frames, in order of selection; the manifest of their folder.

    Attributes:
        seen: number of frames read.
        unusable: frames that show nothing or are unreadable.
        alike: frames that look like a selected one.
    """

    seed: int
    seen: int
    unusable: int
    alike: int
    entries: list[Entry]

    @property
    def sources(self) -> int:
        return len({entry.source for entry in self.entries})

    def part(self, folder: Path, *, held_out: bool, limit: int | None = None) -> Frames:
        """The held-out frames, or the others; with `limit`, that many of them, evenly spaced."""
        entries = [entry for entry in self.entries if entry.held_out is held_out]
        if limit is not None and len(entries) > limit:
            entries = [entries[number * len(entries) // limit] for number in range(limit)]
        return Frames(folder, entries)

    def count(self, *, held_out: bool) -> int:
        return sum(entry.held_out is held_out for entry in self.entries)


class Frames(Sequence[Bgr]):
    """Frames of a folder; a frame is read at each access.

    Attributes:
        names: file names.
        groups: the scene of each frame; `unit` says what a group is.
    """

    def __init__(self, folder: Path, entries: Sequence[Entry]) -> None:
        self._folder, self._entries = folder, entries
        self.names = [entry.file for entry in entries]
        self.groups = [entry.group or entry.file for entry in entries]
        self.unit = PHOTOS if all(entry.photo for entry in entries) else BLOCKS

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, number: int) -> Bgr: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Bgr]: ...
    def __getitem__(self, number: int | slice) -> Bgr | Sequence[Bgr]:
        """A frame, (height, width, 3) uint8 BGR.

        Raises:
            DetectorError: its content differs from the manifest.
        """
        if isinstance(number, slice):
            return Frames(self._folder, self._entries[number])
        entry = self._entries[number]
        content = (self._folder / entry.file).read_bytes()
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            raise DetectorError(f"{self._folder / entry.file} was changed after it was written: sample frames again")
        return np.asarray(cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR), np.uint8)


def photos(folder: Path) -> Iterator[SourceFrame]:
    """Photos of a folder, sorted by name.

    Raises:
        DetectorError: the folder has no photos.
    """
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
    if not files:
        raise DetectorError(f"no photo in {folder}: supported are {', '.join(_SUFFIXES)}")
    for index, file in enumerate(files):
        picture = read_picture(file)
        bgr = np.empty((0, 0, 3), np.uint8) if picture is None else picture
        yield SourceFrame(folder.name, index, bgr, file=file)


@dataclass(frozen=True)
class _Candidate:
    """A frame that may be selected: a thumbnail for comparison, and its content as it would be written."""

    frame: SourceFrame
    thumbnail: npt.NDArray[np.float32]
    content: bytes


class Sampler:
    """Samples frames of sources and selects a diverse set.

    Args:
        count: largest number of calibration frames.
        held_out: largest number of held-out frames.
        seed: same frames and seed, same selection.
    """

    def __init__(self, count: int, held_out: int, seed: int) -> None:
        self._count, self._held_out, self._seed = count, held_out, seed
        self._sources: dict[str, list[_Candidate]] = {}
        self._seen = self._unusable = 0

    def add(self, frames: Iterable[SourceFrame], sources: int) -> None:
        """Read the frames of one source and keep a uniform sample of them.

        Args:
            sources: total number of sources.
        """
        room = max(1, _CANDIDATES_PER_FRAME * (self._count + self._held_out) // sources)
        chance = random.Random(f"{self._seed} {len(self._sources)}")  # noqa: S311 - to choose frames by
        kept: list[_Candidate] = []
        name = ""
        usable = 0
        for frame in frames:
            name = frame.source
            self._seen += 1
            thumbnail = _thumbnail(frame.bgr)
            if thumbnail is None:
                self._unusable += 1
                continue
            usable += 1
            place = len(kept) if len(kept) < room else chance.randrange(usable)
            if place < room:
                kept[place : place + 1] = [_Candidate(frame, thumbnail, _encode(frame))]
        if kept:
            kept.sort(key=lambda row: row.frame.index)
            self._sources.setdefault(name, []).extend(kept)

    def choose(self, folder: Path, minimum: int = MIN_FRAMES) -> FrameSet:
        """Select calibration frames and, from other sources or times, held-out frames; write both.

        Raises:
            DetectorError: too few frames, or too few different ones; or they cannot be written.
        """
        candidates = sum(map(len, self._sources.values()))
        if not candidates:
            raise DetectorError(f"no usable frame among {self._seen}: give clips or photos with something to see")
        if candidates < minimum:
            raise DetectorError(
                f"only {candidates} usable frames of {self._seen}: give longer clips or more photos, at least {minimum}"
            )
        own, held = self._split()
        # Half of the frames are a uniform sample, half the most different ones: rare scenes have the widest ranges.
        chosen = _Selection(own, self._seed, self._count).select(uniform=self._count // 2)
        held_out = _Selection(held, self._seed, self._held_out).select(uniform=self._held_out)
        count = len(chosen) + len(held_out)
        if count < minimum:
            raise DetectorError(
                f"the frames are too similar: {count} of {candidates} differ, and {minimum} are needed: "
                "give recordings of other hours, or more cameras"
            )
        rows = [(row, False) for row in chosen] + [(row, True) for row in held_out]
        entries = [_write(folder, number, row, held_out=out) for number, (row, out) in enumerate(rows)]
        result = FrameSet(self._seed, self._seen, self._unusable, candidates - count, entries)
        (folder / "manifest.json").write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
        return result

    def _split(self) -> tuple[dict[str, list[_Candidate]], dict[str, list[_Candidate]]]:
        """Calibration candidates and held-out candidates. A third of the sources is held out; of fewer than three, the
        last third of each one's time. Photos have no time: a random third of them.
        """
        names = sorted(self._sources)
        chance = random.Random(f"{self._seed} held out")  # noqa: S311 - likewise
        if not self._held_out:
            return {name: self._sources[name] for name in names}, {}
        if len(names) >= _MIN_SOURCES_TO_HOLD_OUT:
            out = set(chance.sample(names, round(len(names) / 3)))
            return (
                {name: self._sources[name] for name in names if name not in out},
                {name: self._sources[name] for name in sorted(out)},
            )
        own, held = {}, {}
        for name in names:
            rows = list(self._sources[name])
            if all(row.frame.at is None for row in rows):
                chance.shuffle(rows)
            cut = len(rows) - len(rows) // 3
            own[name], held[name] = rows[:cut], rows[cut:]
        return own, held


class _Selection:
    """Selects frames from sources in rotation, none too similar to a selected one.

    Args:
        limit: total number of frames.
    """

    def __init__(self, pools: dict[str, list[_Candidate]], seed: int, limit: int) -> None:
        self._pools, self._limit = pools, limit
        self._far = {name: np.full(len(rows), np.inf, np.float32) for name, rows in pools.items()}
        self._turns = deque(pools)  # sources with frames left
        self._chance = np.random.default_rng(seed)
        self._selected: list[_Candidate] = []

    def select(self, uniform: int) -> list[_Candidate]:
        """First `uniform` random frames, then always the one most different from those selected."""
        self._select(uniform, lambda far: int(self._chance.choice(np.flatnonzero(far >= _MIN_DISTANCE))))
        self._select(self._limit, lambda far: int(far.argmax()))
        return self._selected

    def _select(self, limit: int, pick: Callable[[npt.NDArray[np.float32]], int]) -> None:
        while self._turns and len(self._selected) < limit:
            name = self._turns.popleft()
            if self._far[name].max(initial=0.0) >= _MIN_DISTANCE:
                row = self._pools[name][pick(self._far[name])]
                self._selected.append(row)
                self._measure(row)
                self._turns.append(name)

    def _measure(self, selected: _Candidate) -> None:
        for name, rows in self._pools.items():
            distance = np.array(
                [np.sqrt(np.square(row.thumbnail - selected.thumbnail).mean()) for row in rows], np.float32
            )
            self._far[name] = np.minimum(self._far[name], distance)


def _thumbnail(bgr: Bgr) -> npt.NDArray[np.float32] | None:
    """A small grey copy; None for a frame without contrast."""
    if bgr.size == 0:
        return None
    small = cv2.resize(bgr, (_THUMBNAIL_SIDE, _THUMBNAIL_SIDE), interpolation=cv2.INTER_AREA)
    grey = np.asarray(cv2.cvtColor(small, cv2.COLOR_BGR2GRAY), np.float32)
    return grey if float(grey.std()) >= _MIN_CONTRAST else None


def _encode(frame: SourceFrame) -> bytes:
    """A photo's own bytes; another frame as JPEG."""
    if frame.file is not None:
        return frame.file.read_bytes()
    return cv2.imencode(".jpg", frame.bgr, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1].tobytes()


def _write(folder: Path, number: int, row: _Candidate, *, held_out: bool) -> Entry:
    frame = row.frame
    suffix = frame.file.suffix.lower() if frame.file else ".jpg"
    name = f"{number:04}{suffix}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(row.content)
    except OSError as error:
        raise DetectorError(f"{folder / name} cannot be written: {error.strerror}") from error
    digest = hashlib.sha256(row.content).hexdigest()
    return Entry(name, digest, frame.source, frame.index, held_out, frame.group, photo=frame.at is None)
