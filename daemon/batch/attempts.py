"""Clips that are being worked on: hashed, played, and written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from daemon import __version__
from daemon.batch.clips import Clip
from daemon.batch.folder import Result, ResultFolder
from daemon.batch.progress import Playing
from daemon.batch.records import Header
from daemon.batch.settings import Recipe
from daemon.batch.writer import ResultWriter
from daemon.config.models import SINGLE
from daemon.system.stop_token import StoppedError, StopToken
from lookout.messages import Model

_BLOCK = 1 << 20
_THREADS = 2


@dataclass(frozen=True)
class _Read:
    """A file as it was read: its hash, size, time of change, and how long it says to be, ns; 0 if it does not."""

    sha256: str
    size: int
    changed_ns: int
    length_ns: int


class Attempt:
    """One try of a clip.

    Args:
        number: of the try, from 1.
        source: id of the source that plays it.
        reading: reads the clip once, for its hash.

    Attributes:
        result: None before it is played.
        is_published: the result has its name, and only the record of it is missing.
        fault: why there is no result; only the record of it is missing.
    """

    def __init__(self, clip: Clip, number: int, source: str, reading: Future[_Read]) -> None:
        self.clip, self.number, self.source = clip, number, source
        self._reading = reading
        self._writer: ResultWriter | None = None
        self.result: Result | None = None
        self.is_published = False
        self.fault: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether only its record is missing."""
        return self.is_published or self.fault is not None

    @property
    def is_ready(self) -> bool:
        """Whether it can be played now."""
        return self.result is None and not self.is_over and self._reading.done()

    def note_published(self) -> None:
        """The result has its name."""
        self.is_published = True

    def fail(self, fault: str) -> None:
        """There is no result, for this reason."""
        self.fault = fault

    def check_read(self) -> None:
        """Raises:
        OSError: the clip cannot be read.
        StoppedError: reading was stopped.
        """
        self._reading.result()

    def begin(self, folder: ResultFolder, recipe: Recipe, models: Mapping[str, Model]) -> ResultWriter:
        """The writer of its result.

        Args:
            models: that look at it, by name.
        """
        named = {name: models[name] for name in sorted(models)}
        read = self._reading.result()
        self.result = folder.begin(self.clip)
        header = Header(
            clip=os.path.basename(self.clip.name),
            size=read.size,
            sha256=read.sha256,
            model=next(iter(named.values())),
            models={} if SINGLE in named else named,
            settings=recipe.settings,
            release=__version__,
        )
        self._writer = ResultWriter(header, self.result.write)
        return self._writer

    @property
    def playing(self) -> Playing:
        """How far it is."""
        if self._writer is None:
            return Playing(self.clip.number, self.clip.name)
        length = self._reading.result().length_ns
        share = min(1.0, max(0.0, self._writer.played_ns / length)) if length else 0.0
        return Playing(self.clip.number, self.clip.name, share, self._writer.frames)

    @property
    def has_changed(self) -> bool:
        """Whether the clip is another one since it was read.

        Raises:
            OSError: it is gone.
        """
        read, now = self._reading.result(), self.clip.path.stat()
        return (now.st_size, now.st_mtime_ns) != (read.size, read.changed_ns)

    def discard(self) -> None:
        """Throw its file away, unless that is published."""
        self._reading.cancel()
        if self.result is not None:
            self.result.discard()


class Reader:
    """Reads clips in threads of its own.

    Args:
        wake: called when a clip has been read.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._stop, self._wake = StopToken(), wake
        self._pool = ThreadPoolExecutor(_THREADS, "batch-reader")

    def read(self, path: Path) -> Future[_Read]:
        reading = self._pool.submit(self._read, path)
        reading.add_done_callback(lambda _: self._wake())
        return reading

    def close(self) -> None:
        """A reading that is under way is left behind."""
        self._stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _read(self, path: Path) -> _Read:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                if self._stop.is_set:
                    raise StoppedError
                digest.update(block)
            facts = os.fstat(file.fileno())
        return _Read(digest.hexdigest(), facts.st_size, facts.st_mtime_ns, _length_ns(path))


def _length_ns(path: Path) -> int:
    """The length that a recording tells; 0 if it tells none, or is none."""
    import av

    try:
        with av.open(str(path)) as file:
            return max(0, file.duration or 0) * 1000
    except (av.error.FFmpegError, OSError, ValueError):
        return 0
