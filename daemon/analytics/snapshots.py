"""Pictures of events: the frame that confirmed each, with boxes and rule, in a bounded folder.

A lane only asks for the copy of its frame. A thread draws, encodes and writes. A full disk costs pictures, which are
counted and reported.
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import tempfile
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

from daemon.analytics.drawn_rules import drawn_on
from daemon.analytics.event import Event
from daemon.config.events import SnapshotsConfig
from daemon.errors import ConfigError
from daemon.files import try_to_write
from daemon.lifecycle import ThreadPart
from daemon.pipeline.drawing import jpeg, mark, with_boxes
from daemon.pipeline.frames import Frame
from daemon.rule_config import GateConfig, LineConfig, ZoneConfig
from daemon.system.runtime import Runtime
from daemon.system.watchdog import Pulse
from detectors.detections import Detections
from detectors.port import DetectorError, Fetch, Lane

log = structlog.get_logger(__name__)
_MAX_WAITING = 16  # pictures in memory
_IDLE_S = 0.2
_DAY_S = 86_400
_TRIED = 1 << 18  # bytes, as of a picture
_TRY_EVERY_NS = 10_000_000_000
_MIB = 1 << 20
_ID = re.compile(r"[0-9A-Za-z-]{1,64}-\d{1,20}")
_PLACES = (ZoneConfig, LineConfig, GateConfig)
_PICTURED = ("appeared", "entered", "dwell", "crossed", "passed", "over")  # phases that are found on a frame in hand


class _Request(msgspec.Struct, frozen=True):
    """A picture that an event wants of the frame `seq`."""

    id: str
    seq: int
    text: str
    box: tuple[float, float, float, float] | None
    places: list[ZoneConfig | LineConfig | GateConfig]  # the event's rule, if it is about a place


@dataclass(frozen=True)
class _Job:
    fetch: Fetch
    found: Detections
    labels: tuple[str, ...]
    requests: list[_Request]


class EventSnapshots(ThreadPart):
    """Writes pictures from its own thread; those that wait at its end, too.

    Attributes:
        lost: pictures that could not be written, or whose frames never came.
        trouble: why the last one that was tried could not be written; None if it could.

    Raises:
        ConfigError: the folder cannot be used.
    """

    def __init__(self, config: SnapshotsConfig, runtime: Runtime) -> None:
        super().__init__("snapshots", runtime, is_vital=False)
        self._config = config
        self.lost = 0
        self.trouble: str | None = None
        self._try_ns = 0  # monotonic, when a folder in trouble is tried again
        self._lost_here = 0  # since the last picture that was written
        self._losing = threading.Lock()
        self._requests: dict[str, list[_Request]] = {}  # by source; a source is in one lane at a time
        self._jobs = queue.Queue[_Job](_MAX_WAITING)
        self._files: deque[tuple[Path, int]] = deque()  # oldest first, with size
        self._bytes = 0
        try:
            config.folder.mkdir(mode=0o750, exist_ok=True)
            self._find_files()
        except OSError as error:
            raise _unusable(config.folder, error) from error

    def request(self, event: Event, id: str) -> bool:
        """Ask for the picture of an event, before its frame comes to `on_result`; whether there may be one."""
        if event.phase not in _PICTURED or self._jobs.full():
            return False
        text = " ".join([part for part in (event.rule, event.phase, event.direction, event.label) if part])
        places = [event.config] if isinstance(event.config, _PLACES) else []
        request = _Request(id, event.confirmed.seq, text, event.box, places)
        self._requests.setdefault(event.source, []).append(request)
        return True

    @property
    def is_waiting(self) -> bool:
        """Whether there is an event without its picture."""
        return bool(self._requests)

    def on_result(self, frame: Frame, found: Detections, lane: Lane, labels: tuple[str, ...]) -> None:
        """Called by lanes."""
        if frame.info.source not in self._requests:
            return
        if frame.info.account and found.tracks is None:  # another model tracks the source
            return
        source, seq = frame.info.source, frame.info.seq
        requests = self._requests.pop(source)
        if coming := [request for request in requests if request.seq > seq]:  # a batch may have several of a source
            self._requests[source] = coming
        wanted = [request for request in requests if request.seq == seq]
        if late := len(requests) - len(coming) - len(wanted):
            self._lose(late, "the frame is gone")
        if not wanted:
            return
        try:
            self._jobs.put_nowait(_Job(lane.fetch(frame.image), found, labels, wanted))
        except (DetectorError, queue.Full) as error:
            self._lose(len(wanted), str(error) or "they cannot be written as fast")

    def read(self, id: str) -> bytes | None:
        """The picture of an event; None if there is none. Any thread may call it."""
        if not _ID.fullmatch(id):
            return None
        try:
            return (self._config.folder / f"{id}.jpg").read_bytes()
        except OSError:
            return None

    def work(self, pulse: Pulse) -> None:
        while not (self.ending.is_set and self._jobs.empty()):
            pulse.rest()
            try:
                self.write(self._jobs.get(timeout=_IDLE_S))  # nothing holds it longer: its memory is lent
                pulse.beat()
            except queue.Empty:
                self._try_again()

    def on_error(self, error: Exception) -> None:  # noqa: ARG002
        log.exception("pictures of events have failed: events go on without")

    def run_once(self) -> None:
        """Write the pictures that wait, and try whether others could be written."""
        with suppress(queue.Empty):
            while True:
                self.write(self._jobs.get_nowait())
        self._try_again()

    def write(self, job: _Job) -> None:
        try:
            picture = job.fetch().bgr
            for request in job.requests:
                drawn = with_boxes(drawn_on(picture, request.places), job.found, job.labels)
                mark(drawn, request.box, request.text)
                self._store(request.id, jpeg(drawn))
        except (OSError, DetectorError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self._lose(len(job.requests), reason, is_trouble=isinstance(error, OSError))
            return
        self._recover()

    def _try_again(self) -> None:
        """After a failure: until a next event nobody would know that it is over."""
        now = self._clock.monotonic_ns()
        if self.trouble is None or now < self._try_ns:
            return
        self._try_ns = now + _TRY_EVERY_NS
        try:
            self._prune(_TRIED)
            with tempfile.TemporaryFile(dir=self._config.folder) as file:
                file.write(bytes(_TRIED))
        except OSError:
            return
        self._recover()

    def _recover(self) -> None:
        with self._losing:
            lost, self._lost_here, self.trouble = self._lost_here, 0, None
        if lost:
            log.warning("pictures of events are written again", pictures_lost=lost)

    def _store(self, id: str, content: bytes) -> None:
        """Write a file whole or not at all, and keep the bounds of the folder."""
        folder = self._config.folder
        self._prune(len(content))
        temporary = folder / f".{id}"
        try:
            temporary.write_bytes(content)
            os.replace(temporary, folder / f"{id}.jpg")
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise
        self._files.append((folder / f"{id}.jpg", len(content)))
        self._bytes += len(content)

    def _prune(self, coming: int) -> None:
        """Remove old files until there is room.

        Raises:
            OSError: too little of the disk is free, and nothing is left to remove.
        """
        config = self._config
        oldest = self._clock.utc_ns() / 1e9 - config.max_age_days * _DAY_S
        while self._files:
            path, size = self._files[0]
            over = self._bytes + coming > config.max_mib * _MIB
            if not (over or self._is_short() or _time_of(path) < oldest):
                return
            self._files.popleft()
            self._bytes -= size
            with suppress(FileNotFoundError):
                path.unlink()
        if self._is_short():
            raise OSError(28, f"less than {config.min_free_mib} MiB of the disk are free")

    def _is_short(self) -> bool:
        return shutil.disk_usage(self._config.folder).free < self._config.min_free_mib * _MIB

    def _find_files(self) -> None:
        """Those of earlier runs; what a kill has left half written goes."""
        found = []
        for path in self._config.folder.iterdir():
            if path.name.startswith(".") and _ID.fullmatch(path.name[1:]):
                path.unlink()
            elif path.suffix == ".jpg" and _ID.fullmatch(path.stem):
                found.append((path.stat().st_mtime, path, path.stat().st_size))
        self._files.extend((path, size) for _, path, size in sorted(found))
        self._bytes = sum(size for _, size in self._files)

    def _lose(self, count: int, reason: str, *, is_trouble: bool = False) -> None:
        """
        Args:
            is_trouble: the folder does not take them, so that the next ones are lost as well.
        """
        with self._losing:
            is_first = not self._lost_here or (is_trouble and self.trouble is None)
            self.lost += count
            self._lost_here += count
            if is_trouble:
                self._try_ns = self._clock.monotonic_ns() + _TRY_EVERY_NS
                self.trouble = f"pictures cannot be written: {reason}; so far {self._lost_here} are lost"
        if is_first:
            log.error("pictures of events cannot be written", folder=str(self._config.folder), reason=reason)


def try_snapshots(config: SnapshotsConfig | None) -> None:
    """Whether the folder could be used; leaves nothing.

    Raises:
        ConfigError: it could not.
    """
    if config is None:
        return
    folder = config.folder
    try:
        place = folder if folder.exists() else folder.parent
        os.listdir(place)
        try_to_write(place)
    except OSError as error:
        raise _unusable(folder, error) from error


def _unusable(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(f"events.snapshots.folder: {folder} cannot be used: {error.strerror}")


def _time_of(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
