"""Frames to calibrate with: seeded, spread over sources and time, unlike each other, and written with their hashes."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

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
_PHOTOS = (".jpg", ".jpeg", ".png", ".bmp", ".webp")

Bgr = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Seen:
    """A frame of a source.

    Attributes:
        source: its name.
        index: of the frame in the source, from 0.
        bgr: (height, width, 3) uint8.
        file: the photo it was read from, if it was one.
    """

    source: str
    index: int
    bgr: Bgr
    file: Path | None = None


class Entry(msgspec.Struct, frozen=True):
    """A frame that was taken; `held_out` ones are not calibrated with, but compared on."""

    file: str
    sha256: str
    source: str
    index: int
    held_out: bool


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

    def read(self, folder: Path, *, held_out: bool) -> Iterator[Bgr]:
        """The pictures of one part.

        Raises:
            DetectorError: one is not what the manifest says.
        """
        for entry in self.entries:
            if entry.held_out is held_out:
                content = (folder / entry.file).read_bytes()
                if hashlib.sha256(content).hexdigest() != entry.sha256:
                    raise DetectorError(f"{folder / entry.file} was changed since it was taken: take the frames again")
                picture = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
                yield np.asarray(picture, np.uint8)

    def count(self, *, held_out: bool) -> int:
        return sum(entry.held_out is held_out for entry in self.entries)


def photos(folder: Path) -> Iterator[Seen]:
    """Photos of a folder, by name.

    Raises:
        DetectorError: there are none.
    """
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in _PHOTOS)
    if not files:
        raise DetectorError(f"no photo in {folder}: known are {', '.join(_PHOTOS)}")
    for index, file in enumerate(files):
        picture = cv2.imread(str(file), cv2.IMREAD_COLOR)
        yield Seen(folder.name, index, np.empty((0, 0, 3), np.uint8) if picture is None else np.asarray(picture), file)


class Sampler:
    """Chooses among frames that go by.

    Args:
        count: frames to calibrate with, at most.
        held_out: and others to compare on, at most.
        seed: the same frames and seed give the same choice.
    """

    def __init__(self, count: int, held_out: int, seed: int) -> None:
        self._count, self._held_out, self._seed = count, held_out, seed
        self._sources: dict[str, list[tuple[Seen, npt.NDArray[np.float32], bytes]]] = {}
        self._seen = self._unusable = 0

    def take(self, frames: Iterable[Seen], sources: int) -> None:
        """Look at the frames of one source; an even sample of them stays.

        Args:
            sources: how many there will be.
        """
        room = max(1, _SPARE * (self._count + self._held_out) // sources)
        chance = random.Random(f"{self._seed} {len(self._sources)}")  # noqa: S311 - to choose frames by
        kept: list[tuple[Seen, npt.NDArray[np.float32], bytes]] = []
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
                row = (frame, thumbnail, _encode(frame))
                kept[place : place + 1] = [row]
        if kept:
            kept.sort(key=lambda row: row[0].index)
            self._sources.setdefault(name, []).extend(kept)

    def choose(self, folder: Path, least: int = LEAST) -> FrameSet:
        """Choose, source by source in turns, each time what differs most from what is there, and write it.

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
        chosen = self._unlike(self._count + self._held_out)
        if len(chosen) < least:
            raise DetectorError(
                f"the frames are all alike: {len(chosen)} of {candidates} differ, and {least} are needed: "
                "give other hours, or more cameras"
            )
        # Every third is held out: early choices are the most unlike, and both parts shall have them.
        parts, held = [], 0
        for number in range(len(chosen)):
            out = number % 3 == 2 and held < min(self._held_out, len(chosen) // 3)
            held += out
            parts.append(out)
        entries = [_write(folder, number, *chosen[number], parts[number]) for number in range(len(chosen))]
        result = FrameSet(self._seed, self._seen, self._unusable, candidates - len(chosen), entries)
        (folder / "manifest.json").write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
        return result

    def _unlike(self, count: int) -> list[tuple[Seen, bytes]]:
        """Farthest first."""
        pools = {name: list(rows) for name, rows in sorted(self._sources.items())}
        far = {name: np.full(len(rows), np.inf, np.float32) for name, rows in pools.items()}
        chosen: list[tuple[Seen, bytes]] = []
        while len(chosen) < count and far:
            for name in list(far):
                if len(chosen) == count:
                    break
                best = int(far[name].argmax())
                if far[name][best] < _ALIKE:
                    del far[name]
                    continue
                frame, thumbnail, content = pools[name][best]
                chosen.append((frame, content))
                for other, rows in pools.items():
                    if other in far:
                        apart = np.array([np.sqrt(np.square(row[1] - thumbnail).mean()) for row in rows], np.float32)
                        far[other] = np.minimum(far[other], apart)
        return chosen


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


def _write(folder: Path, number: int, frame: Seen, content: bytes, held_out: bool) -> Entry:
    suffix = frame.file.suffix.lower() if frame.file else ".jpg"
    name = f"{number:04}{suffix}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    except OSError as error:
        raise DetectorError(f"{folder / name} cannot be written: {error.strerror}") from error
    return Entry(name, hashlib.sha256(content).hexdigest(), frame.source, frame.index, held_out)
