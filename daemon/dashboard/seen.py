"""Which events somebody has seen. The event loop's thread alone uses it; a thread of its own writes the file."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import structlog

from daemon.clock import Clock
from daemon.dashboard.seen_file import Line, SeenFile
from daemon.errors import ConfigError
from daemon.files import state_folder

log = structlog.get_logger(__name__)
MAX_MARKS = 100_000  # the oldest go first
MAX_AGE_NS = 90 * 86_400 * 1_000_000_000
_SPARE_LINES = 10_000  # of the file, beside two for each mark, before it is made anew
_OPEN_S, _ANSWER_S, _CLOSE_S = 5.0, 2.0, 1.0
_NO_FILE = "dashboard.seen names no file"


def seen_file_of(seen: str, port: int) -> Path | None:
    """The file that `dashboard.seen` means; None for none."""
    if seen == "off":
        return None
    if seen != "auto":
        return Path(seen)
    folder = state_folder()
    return folder / f"seen-{port}.jsonl" if folder and port else None


class Mark(NamedTuple):
    """Attributes:
    by: name of the token that marked it.
    at: UTC ns.
    """

    by: str
    at: int


class _Order(NamedTuple):
    """Attributes:
    lines: to be appended,
    whole: unless the file is to be made anew with all of these,
    is_loaded: which include what the file had at first.
    """

    lines: list[Line]
    whole: dict[str, Mark] | None
    is_loaded: bool
    done: asyncio.Future[None]
    loop: asyncio.AbstractEventLoop


class SeenMarks:
    """Marks of events, by their ids. They are in memory, and in a file where one is given.

    A file that cannot be used, or a disk that is full or hangs, costs nothing but that a restart may lose marks, and
    `problem` says so. The file is made anew when it can be.

    Args:
        path: of the file; None: the marks end with this process.

    Attributes:
        problem: why marks go with a restart; None if they do not.

    Raises:
        ConfigError: another page uses the file, or it belongs to something else.
    """

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._marks: dict[str, Mark] = {}  # oldest first
        self.problem: str | None = _NO_FILE if path is None else None
        self._orders = queue.SimpleQueue[_Order | None]()
        self._waiting: asyncio.Future[None] | None = None
        self._is_behind = False  # the file lacks something, and must be made anew
        self._opening = threading.Event()
        self._file: SeenFile | None = None
        self._found: list[Line] | None = None  # in the file at first; None until it is read
        self._is_loaded = False
        self._refusal: ConfigError | None = None
        if path is None:
            return
        self._thread = threading.Thread(target=self._write, name="seen", daemon=True)
        self._thread.start()
        if not self._opening.wait(_OPEN_S):
            self.problem = f"{path} does not answer"
        if self._refusal is not None:
            raise self._refusal
        self._is_behind = self.problem is not None

    def of(self, id: str) -> Mark | None:
        """The mark of an event."""
        self._take_found()
        return self._marks.get(id)

    def mark(self, ids: Iterable[str], by: str) -> list[str]:
        """Mark events; those that were not marked before. `kept` tells when that is on the disk."""
        self._take_found()
        at = self._clock.utc_ns()
        new = [id for id in dict.fromkeys(ids) if id not in self._marks]
        for id in new:
            self._marks[id] = Mark(by, at)
        self._prune(at)
        self._order([Line(id, by, at) for id in new])
        return new

    def unmark(self, ids: Iterable[str]) -> list[str]:
        """Take marks back; those that there were."""
        self._take_found()
        gone = [id for id in dict.fromkeys(ids) if self._marks.pop(id, None) is not None]
        self._order([Line(id) for id in gone])
        return gone

    async def kept(self) -> bool:
        """Whether all that was marked is on the disk; waits for that, within a time limit."""
        if self._waiting is not None and not self._waiting.done():
            with suppress(OSError, asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._waiting), _ANSWER_S)
            if not self._waiting.done():
                self.problem = f"{self._path} does not answer"
        return self.problem is None

    def close(self) -> None:
        """Write the marks that wait, within a time limit."""
        if self._path is not None:
            self._orders.put(None)
            self._thread.join(_CLOSE_S)

    def _order(self, lines: list[Line]) -> None:
        if self._path is None or not lines:
            return
        is_stuck = self._waiting is not None and not self._waiting.done() and self.problem is not None
        if is_stuck:  # memory does not grow with what a disk that hangs does not take
            self._is_behind = True
        elif self._is_behind or self._has_grown():
            self._write_all()
        else:
            self._put(lines, None)

    def _write_all(self) -> None:
        self._is_behind = False
        self._put([], dict(self._marks))

    def _put(self, lines: list[Line], whole: dict[str, Mark] | None) -> None:
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        self._waiting.add_done_callback(self._note)
        self._orders.put(_Order(lines, whole, self._is_loaded, self._waiting, loop))

    def _has_grown(self) -> bool:
        return self._file is not None and self._file.lines > 2 * len(self._marks) + _SPARE_LINES

    def _note(self, done: asyncio.Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self._is_behind = True
            reason = getattr(error, "strerror", None) or str(error)
            if self.problem is None:
                log.error("marks of seen events cannot be written", path=str(self._path), reason=reason)
            self.problem = f"{self._path} cannot be written: {reason}"
        elif self._is_behind:
            self._write_all()
        elif self.problem is not None:
            log.info("marks of seen events are written again", path=str(self._path))
            self.problem = None

    def _prune(self, now: int) -> None:
        while self._marks:
            id = next(iter(self._marks))
            if len(self._marks) <= MAX_MARKS and self._marks[id].at > now - MAX_AGE_NS:
                return
            del self._marks[id]

    def _take_found(self) -> None:
        """Take the marks of the file over, once it is read; those that were made meanwhile stay."""
        if self._is_loaded or self._found is None:
            return
        self._is_loaded = True
        newer, self._marks = self._marks, {}
        for line in self._found:
            if line.by is None:
                self._marks.pop(line.id, None)
            else:
                self._marks[line.id] = Mark(line.by, line.at)
        self._marks.update(newer)
        self._prune(self._clock.utc_ns())

    # --- the thread that writes ------------------------------------------------------------------------------------

    def _write(self) -> None:
        try:
            self._open()
        except ConfigError as error:
            self._refusal = error
        except OSError as error:
            self.problem = f"{self._path} cannot be used: {error.strerror}"
            log.error("marks of seen events are kept in memory alone", reason=self.problem)
        self._opening.set()
        while (order := self._orders.get()) is not None:
            failure = self._carry_out(order)
            with suppress(RuntimeError):  # the loop has ended
                order.loop.call_soon_threadsafe(_settle, order.done, failure)
        if self._file is not None:
            self._file.close()

    def _open(self) -> None:
        assert self._path is not None  # noqa: S101 - the thread runs with a path alone
        self._file = file = SeenFile(self._path)
        found, is_whole = file.read()
        if not is_whole:
            file.replace(found)
        self._found = found

    def _carry_out(self, order: _Order) -> OSError | None:
        try:
            if self._file is None:
                self._open()
                assert self._file is not None  # noqa: S101 - it is open, or was refused
            if order.whole is not None:
                first = [] if order.is_loaded else self._found or []
                self._file.replace([*first, *_lines(order.whole)])
            else:
                self._file.append(order.lines)
        except OSError as error:
            return error
        except ConfigError as error:  # its folder came back with the lock of another page
            return OSError(0, str(error))
        return None


def _lines(marks: dict[str, Mark]) -> Sequence[Line]:
    return [Line(id, mark.by, mark.at) for id, mark in marks.items()]


def _settle(done: asyncio.Future[None], error: OSError | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
