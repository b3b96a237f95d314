"""Frames to calibrate with and others to judge by: seeded, spread over sources and time, written with their hashes."""

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

from detectors.port import DetectorError

LEAST = 32
_SPARE = 3  # candidates for each frame that is wanted
_SIDE = 32  # of the thumbnails that frames are compared by
_ALIKE = 2.0  # of 255: root mean square between thumbnails of frames that show the same
_FLAT = 3.0  # of 255: the standard deviation of a picture of nothing
_QUALITY = 95
_BLOCK_S = 10.0  # frames of one source that are nearer to each other show the same scene
_WHOLE = 3  # sources, from which on whole ones are held out
PHOTOS, BLOCKS = "photos", f"blocks of {_BLOCK_S:.0f} s"
_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")

Bgr = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Seen:
    """A frame of a source.

    Attributes:
        source: its name.
        index: of the frame in the source, from 0.
        bgr: (height, width, 3) uint8.
        at: seconds into the source; None for a photo.
        file: the photo it was read from, if it was one.
    """

    source: str
    index: int
    bgr: Bgr
    at: float | None = None
    file: Path | None = None

    @property
    def group(self) -> str:
        """What it shows the same scene as: the source and its ten seconds; a photo shows a scene of its own."""
        return f"{self.source}/{self.index}" if self.at is None else f"{self.source}/{int(self.at // _BLOCK_S)}"


class Entry(msgspec.Struct, frozen=True):
    """A frame that was taken; `held_out` ones are not calibrated with, but compared on.

    Attributes:
        group: of frames that show the same scene, see `Seen.group`.
    """

    file: str
    sha256: str
    source: str
    index: int
    held_out: bool
    group: str = ""
    photo: bool = False


class FrameSet(msgspec.Struct, frozen=True):
    """What was taken, in the order of choice; the manifest of its folder.

    Attributes:
        seen: frames looked at.
        unusable: of nothing, or unreadable.
        alike: left out because one like it was taken.
    """

    seed: int
    seen: int
    unusable: int
    alike: int
    entries: list[Entry]

    @property
    def sources(self) -> int:
        return len({entry.source for entry in self.entries})

    def part(self, folder: Path, *, held_out: bool, most: int | None = None) -> Frames:
        """One part of the pictures, or an even choice of so many of them."""
        entries = [entry for entry in self.entries if entry.held_out is held_out]
        if most is not None and len(entries) > most:
            entries = [entries[number * len(entries) // most] for number in range(most)]
        return Frames(folder, entries)

    def count(self, *, held_out: bool) -> int:
        return sum(entry.held_out is held_out for entry in self.entries)


class Frames(Sequence[Bgr]):
    """Pictures of a folder, each read when it is asked for.

    Attributes:
        names: of the files.
        groups: of frames that show the same scene, one for each picture; `unit` says what a group is.
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
        """A picture.

        Raises:
            DetectorError: it is not what the manifest says.
        """
        if isinstance(number, slice):
            return Frames(self._folder, self._entries[number])
        entry = self._entries[number]
        content = (self._folder / entry.file).read_bytes()
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            raise DetectorError(f"{self._folder / entry.file} was changed since it was taken: take the frames again")
        return np.asarray(cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR), np.uint8)


def photos(folder: Path) -> Iterator[Seen]:
    """Photos of a folder, by name.

    Raises:
        DetectorError: there are none.
    """
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
    if not files:
        raise DetectorError(f"no photo in {folder}: known are {', '.join(_SUFFIXES)}")
    for index, file in enumerate(files):
        picture = cv2.imread(str(file), cv2.IMREAD_COLOR)
        bgr = np.empty((0, 0, 3), np.uint8) if picture is None else np.asarray(picture, np.uint8)
        yield Seen(folder.name, index, bgr, file=file)


@dataclass(frozen=True)
class _Candidate:
    """A frame that may be taken: a thumbnail to compare it by, and its content as it would be written."""

    frame: Seen
    thumbnail: npt.NDArray[np.float32]
    content: bytes


class Sampler:
    """Chooses among frames that go by.

    Args:
        count: frames to calibrate with, at most.
        held_out: and others to compare on, at most.
        seed: the same frames and seed give the same choice.
    """

    def __init__(self, count: int, held_out: int, seed: int) -> None:
        self._count, self._held_out, self._seed = count, held_out, seed
        self._sources: dict[str, list[_Candidate]] = {}
        self._seen = self._unusable = 0

    def take(self, frames: Iterable[Seen], sources: int) -> None:
        """Look at the frames of one source; an even sample of them stays.

        Args:
            sources: how many there will be.
        """
        room = max(1, _SPARE * (self._count + self._held_out) // sources)
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

    def choose(self, folder: Path, least: int = LEAST) -> FrameSet:
        """Choose frames to calibrate with and, from other sources or times, frames to judge by; write both.

        Raises:
            DetectorError: there are too few frames, or too few that differ; or they cannot be written.
        """
        candidates = sum(map(len, self._sources.values()))
        if not candidates:
            raise DetectorError(f"no usable frame among {self._seen}: give clips or photos with something to see")
        if candidates < least:
            raise DetectorError(
                f"only {candidates} usable frames of {self._seen}: give longer clips or more photos, {least} at least"
            )
        own, held = self._parted()
        # Half of the frames are as life has them, and half the most unlike: rare scenes have the widest ranges.
        chosen = _Choice(own, self._seed, self._count).taken(uniform=self._count // 2)
        judging = _Choice(held, self._seed, self._held_out).taken(uniform=self._held_out)
        count = len(chosen) + len(judging)
        if count < least:
            raise DetectorError(
                f"the frames are all alike: {count} of {candidates} differ, and {least} are needed: "
                "give other hours, or more cameras"
            )
        rows = [(row, False) for row in chosen] + [(row, True) for row in judging]
        entries = [_write(folder, number, row, held_out=out) for number, (row, out) in enumerate(rows)]
        result = FrameSet(self._seed, self._seen, self._unusable, candidates - count, entries)
        (folder / "manifest.json").write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
        return result

    def _parted(self) -> tuple[dict[str, list[_Candidate]], dict[str, list[_Candidate]]]:
        """Candidates to calibrate with, and those held out: whole sources of three or more, else of each the last third
        of its time. Photos have no time: any third of them.
        """
        names = sorted(self._sources)
        chance = random.Random(f"{self._seed} held out")  # noqa: S311 - likewise
        if not self._held_out:
            return {name: self._sources[name] for name in names}, {}
        if len(names) >= _WHOLE:
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


class _Choice:
    """Takes frames from sources in turns, none that shows the same as one that was taken.

    Args:
        most: frames in all.
    """

    def __init__(self, pools: dict[str, list[_Candidate]], seed: int, most: int) -> None:
        self._pools, self._most = pools, most
        self._far = {name: np.full(len(rows), np.inf, np.float32) for name, rows in pools.items()}
        self._turns = deque(pools)  # sources that may have another
        self._chance = np.random.default_rng(seed)
        self._taken: list[_Candidate] = []

    def taken(self, uniform: int) -> list[_Candidate]:
        """So many by chance, then always the one that differs most from those taken."""
        self._take(uniform, lambda far: int(self._chance.choice(np.flatnonzero(far >= _ALIKE))))
        self._take(self._most, lambda far: int(far.argmax()))
        return self._taken

    def _take(self, most: int, pick: Callable[[npt.NDArray[np.float32]], int]) -> None:
        while self._turns and len(self._taken) < most:
            name = self._turns.popleft()
            if self._far[name].max(initial=0.0) >= _ALIKE:
                row = self._pools[name][pick(self._far[name])]
                self._taken.append(row)
                self._measure(row)
                self._turns.append(name)

    def _measure(self, taken: _Candidate) -> None:
        for name, rows in self._pools.items():
            apart = np.array([np.sqrt(np.square(row.thumbnail - taken.thumbnail).mean()) for row in rows], np.float32)
            self._far[name] = np.minimum(self._far[name], apart)


def _thumbnail(bgr: Bgr) -> npt.NDArray[np.float32] | None:
    """Grey and small; None for a picture of nothing."""
    if bgr.size == 0:
        return None
    grey = cv2.cvtColor(cv2.resize(bgr, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA), cv2.COLOR_BGR2GRAY)
    small = np.asarray(grey, np.float32)
    return small if float(small.std()) >= _FLAT else None


def _encode(frame: Seen) -> bytes:
    """A photo as it is; another frame as a photo."""
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
