"""In the daemon's process: the process of a store, and its successor when it dies."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, NamedTuple

import structlog

from daemon.capture.processes.protocol import ProcessMessage
from daemon.capture.processes.supervised import Link, SupervisedProcess
from daemon.recording.absence import Absence
from daemon.recording.causes import Cause
from daemon.recording.clips import Claim
from daemon.recording.process.main import RecorderOrder
from daemon.recording.process.protocol import (
    Accounts,
    Beat,
    Claimed,
    ClipTold,
    Configure,
    Failed,
    Forget,
    Forgotten,
    FromRecorder,
    Noted,
    Others,
    Record,
    Stop,
    Tracks,
)
from daemon.recording.ring import Ring
from daemon.recording.source_recorder import Account, Settings
from daemon.system.runtime import Runtime

log = structlog.get_logger(__name__)
_SILENT_NS = 5_000_000_000  # without a sign of life for so long its store hangs
_END_S = 4.0
_MAX_WAITING = 100_000  # messages; claims must not be more
_MAX_UNHEARD = 10_000  # claims
_MAX_LEAVING = 256  # sources, each with its ring


class StoreFigures(NamedTuple):
    """A store as it was told of last.

    Attributes:
        cause, detail: why nothing can be written now; None if it can.
        bytes: of its recordings.
        free_bytes: of its disk; -1 if unknown.
    """

    name: str
    cause: Cause | None
    detail: str | None
    bytes: int
    free_bytes: int
    accounts: tuple[Account, ...]


class StoreProcess(SupervisedProcess):
    """Any thread may call it; nothing blocks.

    A process that hangs in its file system cannot be ended by anybody: it is left behind.

    Args:
        tell: called by the thread of this part with each clip that begins or is over, and with changes of the figures.
        tracks: the ring of analysed pictures.
    """

    def __init__(
        self,
        name: str,
        order: RecorderOrder,
        tell: Callable[[ClipTold | StoreFigures], None],
        tracks: Ring,
        runtime: Runtime,
    ) -> None:
        super().__init__(f"store-{name}", "daemon.recording.process.main", FromRecorder, _END_S, runtime)
        self.store, self._tracks = name, tracks
        self._order, self._tell = order, tell
        self._wanted: dict[str, tuple[Settings, Ring]] = {}
        self._lock = threading.Lock()  # of what is wanted, and of the messages that say so
        self._leaving: dict[int, tuple[Forget, Settings, Ring]] = {}  # until the process has said that it is done
        self._absence: Absence | None = None
        self._numbers = itertools.count()
        self._waiting: deque[tuple[ProcessMessage, Ring | None]] = deque()
        self._unheard: deque[Claimed] = deque()  # the process may not have them
        self._heard = 0  # claims that it has told of
        self._accounts: list[Account] = []  # for the next beat
        self._heard_at = runtime.clock.utc_ns()
        self._figures = StoreFigures(name, "recorder_down", "it has not begun", 0, -1, ())

    # --- from any thread -------------------------------------------------------------------------------------------

    @property
    def figures(self) -> StoreFigures:
        return self._figures

    def record(self, source: str, settings: Settings, ring: Ring) -> None:
        with self._lock:
            self._wanted = {**self._wanted, source: (settings, ring)}
            self._put(Record(source, settings), ring)

    def configure(self, source: str, settings: Settings) -> None:
        with self._lock:
            known = self._wanted.get(source)
            if known is not None:
                self._wanted = {**self._wanted, source: (settings, known[1])}
                self._put(Configure(source, settings))

    def forget(self, source: str, cause: Cause, detail: str, at: int) -> None:
        """
        Args:
            at: UTC ns.
        """
        with self._lock:
            known = self._wanted.get(source)
            if known is None:
                return
            message = Forget(source, cause, detail, at, next(self._numbers))
            if len(self._leaving) < _MAX_LEAVING:
                self._leaving[message.number] = message, *known
            self._wanted = {name: row for name, row in self._wanted.items() if name != source}
            self._put(message)

    def explain(self, absence: Absence) -> None:
        """Say why the store gets nothing of sources that it knows."""
        with self._lock:
            self._absence = absence
            self._put(Others(absence))

    def note(self, source: str, at: int, cause: Cause, detail: str | None) -> None:
        if source in self._wanted:
            self._put(Noted(source, at, cause, detail))

    def claim(self, source: str, claim: Claim) -> bool:
        """Whether the store records the source, and has not hung for too long."""
        if source not in self._wanted or len(self._waiting) >= _MAX_WAITING:
            return False
        self._put(Claimed(source, claim))
        return True

    def _put(self, message: ProcessMessage, ring: Ring | None = None) -> None:
        self._waiting.append((message, ring))
        self.ring_bell()

    # --- its thread ------------------------------------------------------------------------------------------------

    @property
    def is_wanted(self) -> bool:
        return True

    @property
    def order(self) -> RecorderOrder:
        return self._order

    @property
    def farewell(self) -> Stop:
        return Stop()

    def on_begun(self, link: Link) -> None:
        # It begins with what is wanted now: an older message must not undo that.
        with self._lock:
            leaving, wanted, absence = [*self._leaving.values()], self._wanted, self._absence
            for _ in range(len(self._waiting)):
                row = self._waiting.popleft()
                if not isinstance(row[0], (Record, Configure, Forget, Others)):
                    self._waiting.append(row)
        link.put(Tracks(), self._tracks)
        unheard, self._unheard, self._heard = self._unheard, deque(), 0
        for message, settings, ring in leaving:  # what is in their rings is still to be written
            link.put(Record(message.source, settings), ring)
            unheard = self._tell_again(link, unheard, {message.source})
            link.put(message)
        for source, (settings, ring) in wanted.items():
            link.put(Record(source, settings), ring)
        if absence is not None:
            link.put(Others(absence))
        self._tell_again(link, unheard, {claimed.source for claimed in unheard})

    def _tell_again(self, link: Link, unheard: deque[Claimed], sources: Collection[str]) -> deque[Claimed]:
        """Tell claims of some sources to a process; returns those of others."""
        others = deque[Claimed]()
        for claimed in unheard:
            if claimed.source in sources:
                self._unheard.append(claimed)
                link.put(claimed)
            else:
                others.append(claimed)
        return others

    def on_turn(self, link: Link, now_ns: int) -> None:
        while self._waiting and len(self._unheard) < _MAX_UNHEARD:
            message, ring = self._waiting.popleft()
            if isinstance(message, Claimed):
                self._unheard.append(message)
            link.put(message, ring)
        silent = now_ns - link.heard_ns
        if silent > _SILENT_NS and link.has_spoken and self._figures.cause != "store_hung":
            log.warning("a store does not answer", store=self.store, seconds=silent // 10**9)
            self._change(cause="store_hung", detail="a write does not return")

    def on_message(self, link: Link, message: Any) -> None:
        if isinstance(message, Beat):
            if message.uuid != self._order.place.uuid:
                self._order = replace(self._order, place=replace(self._order.place, uuid=message.uuid))
            self._heard_at = self._clock.utc_ns()
            while self._unheard and self._heard < message.claims:
                self._unheard.popleft()
                self._heard += 1
            accounts, self._accounts = tuple(self._accounts), []
            sizes = {"bytes": message.bytes, "free_bytes": message.free_bytes, "accounts": accounts}
            self._change(cause=message.cause, detail=message.detail, **sizes)
        elif isinstance(message, Accounts):
            self._accounts += message.rows
        elif isinstance(message, ClipTold):
            self._tell(message)
        elif isinstance(message, Forgotten):
            self._leaving.pop(message.number, None)
        elif isinstance(message, Failed):
            link.blame(message.reason)

    def on_lost(self, reason: str, retry_in_s: float) -> None:  # noqa: ARG002 - what waits in the rings is written then
        self._accounts = []
        place = replace(self._order.place, down_since=self._heard_at)
        self._order = replace(self._order, place=place)
        self._change(cause="recorder_down", detail=reason)

    def _change(self, **changes: Any) -> None:
        before, self._figures = self._figures, self._figures._replace(**changes)
        if before.cause != self._figures.cause:
            self._tell(self._figures)
