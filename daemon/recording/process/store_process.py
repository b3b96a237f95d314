"""In the daemon's process: the process of a store, and its successor when it dies."""

from __future__ import annotations

import os
import select
import signal
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import structlog

from daemon.capture.processes.channel import Channel, pair
from daemon.capture.processes.protocol import ProcessMessage
from daemon.lifecycle import ThreadPart
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
    FromRecorder,
    Noted,
    Record,
    Stop,
    Tracks,
)
from daemon.recording.ring import Ring
from daemon.recording.source_recorder import Account, Settings
from daemon.system.children import Child, finish, spawn
from daemon.system.runtime import Runtime
from daemon.system.watchdog import Pulse

log = structlog.get_logger(__name__)
_PROGRAM = "daemon.recording.process.main"
_POLL_MS = 200
_SILENT_NS = 5_000_000_000  # without a sign of life for so long its store hangs
_END_S, _REAP_S = 2.0, 0.2
_MAX_WAITING = 100_000  # messages
_MAX_PAUSE_FACTOR = 30  # times the first pause


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


@dataclass
class _Run:
    """One process."""

    process: Child
    channel: Channel
    begun_ns: int
    heard_ns: int
    unsent: deque[tuple[ProcessMessage, Ring | None]]
    problem: str | None = None


class StoreProcess(ThreadPart):
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
        super().__init__(f"store-{name}", runtime, is_vital=False)
        self.store, self._tracks = name, tracks
        self._order, self._tell, self._pause_s = order, tell, runtime.limits.worker_pause
        self._first_pause_s, self._lived_ns = self._pause_s, round(runtime.limits.worker_lived * 1e9)
        self._wanted: dict[str, tuple[Settings, Ring]] = {}
        self._waiting: deque[tuple[ProcessMessage, Ring | None]] = deque()
        self._run_now: _Run | None = None
        self._due_ns = 0
        self._accounts: list[Account] = []  # for the next beat
        self._figures = StoreFigures(name, "recorder_down", "it has not begun", 0, -1, ())
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._waker, False)
        self.ending.on_set(self._ring_bell)

    # --- from any thread -------------------------------------------------------------------------------------------

    @property
    def figures(self) -> StoreFigures:
        return self._figures

    @property
    def pids(self) -> list[int]:
        run = self._run_now
        return [run.process.pid] if run else []

    def record(self, source: str, settings: Settings, ring: Ring) -> None:
        self._wanted = {**self._wanted, source: (settings, ring)}
        self._put(Record(source, settings), ring)

    def configure(self, source: str, settings: Settings) -> None:
        known = self._wanted.get(source)
        if known is not None:
            self._wanted = {**self._wanted, source: (settings, known[1])}
            self._put(Configure(source, settings))

    def forget(self, source: str, cause: Cause, detail: str) -> None:
        self._wanted = {name: row for name, row in self._wanted.items() if name != source}
        self._put(Forget(source, cause, detail))

    def note(self, source: str, at: int, cause: Cause, detail: str | None) -> None:
        if source in self._wanted:
            self._put(Noted(source, at, cause, detail))

    def claim(self, source: str, claim: Claim) -> bool:
        """Whether the store records the source."""
        if source not in self._wanted:
            return False
        self._put(Claimed(source, claim))
        return True

    def _put(self, message: ProcessMessage, ring: Ring | None = None) -> None:
        if len(self._waiting) < _MAX_WAITING:
            self._waiting.append((message, ring))
        self._ring_bell()

    def _ring_bell(self) -> None:
        with suppress(OSError):  # the pipe is full, or the part has ended
            os.write(self._waker, b".")

    # --- its thread ------------------------------------------------------------------------------------------------

    def work(self, pulse: Pulse) -> None:
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        while not self.ending.is_set:
            pulse.beat()
            self._turn()
            run = self._run_now
            if run:
                poller.register(run.channel.socket, select.POLLIN)
            ready = [fd for fd, _ in poller.poll(_POLL_MS)]
            if run:
                poller.unregister(run.channel.socket)
            if self._wake in ready:
                with suppress(BlockingIOError):
                    os.read(self._wake, 4096)
            if run and run.channel.socket.fileno() in ready:
                self._receive(run)
        if self._run_now:
            self._end(self._run_now)

    def close(self) -> None:
        wake, self._wake, waker, self._waker = self._wake, -1, self._waker, -1
        os.close(waker)
        os.close(wake)

    def _turn(self) -> None:
        """Start the process if it is not there, send what there is, and look whether it lives."""
        now, run = self._clock.monotonic_ns(), self._run_now
        if run is None:
            if now < self._due_ns:
                return
            run = self._started(now)
            if run is None:
                return
        self._send(run)
        if now - run.heard_ns > _SILENT_NS and self._figures.cause != "store_hung" and run.heard_ns > run.begun_ns:
            log.warning("a store does not answer", store=self.store, seconds=(now - run.heard_ns) // 10**9)
            self._change(cause="store_hung", detail="a write does not return")

    def _send(self, run: _Run) -> None:
        while self._waiting:
            run.unsent.append(self._waiting.popleft())
        try:
            while run.unsent:
                message, ring = run.unsent[0]
                if not run.channel.send([message], ring.fd if ring else None):
                    return
                run.unsent.popleft()
        except OSError:
            run.unsent.clear()  # it has ended: its last messages are still to be read

    def _started(self, now: int) -> _Run | None:
        try:
            mine, theirs = pair()
            try:
                process = spawn(_PROGRAM, self._order, [theirs.fileno()])
            except BaseException:
                mine.close()
                raise
            finally:
                theirs.close()
        except OSError as error:
            self._put_off(now, f"no process can be started for it: {error.strerror}")
            return None
        known = deque[tuple[ProcessMessage, Ring | None]]([(Tracks(), self._tracks)])
        known += ((Record(source, settings), ring) for source, (settings, ring) in self._wanted.items())
        self._waiting = deque(row for row in self._waiting if not isinstance(row[0], (Record, Configure)))
        self._run_now = run = _Run(process, Channel(mine, FromRecorder), now, now, deque(known))
        return run

    def _receive(self, run: _Run) -> None:
        try:
            received = run.channel.receive()
        except (OSError, ValueError) as error:  # a process of another mind
            run.problem = run.problem or f"{type(error).__name__}: {error}"
            run.process.kill()
            received = None
        if received is None:
            self._lost(run)
            return
        if received[0]:
            run.heard_ns = self._clock.monotonic_ns()
        for message in received[0]:
            self._on_message(run, message)

    def _on_message(self, run: _Run, message: Any) -> None:
        if isinstance(message, Beat):
            if message.uuid != self._order.place.uuid:
                self._order = replace(self._order, place=replace(self._order.place, uuid=message.uuid))
            accounts, self._accounts = tuple(self._accounts), []
            sizes = {"bytes": message.bytes, "free_bytes": message.free_bytes, "accounts": accounts}
            self._change(cause=message.cause, detail=message.detail, **sizes)
        elif isinstance(message, Accounts):
            self._accounts += message.rows
        elif isinstance(message, ClipTold):
            self._tell(message)
        elif isinstance(message, Failed):
            run.problem = message.reason

    def _change(self, **changes: Any) -> None:
        before, self._figures = self._figures, self._figures._replace(**changes)
        if before.cause != self._figures.cause:
            self._tell(self._figures)

    def _lost(self, run: _Run) -> None:
        """The process has ended: another one goes on after a pause, with what waits in the rings."""
        self._run_now = None
        run.channel.close()
        finish(run.process, _REAP_S, _REAP_S)
        reason = run.problem or _exit_message(run.process.returncode)
        log.error("the process of a store ended", store=self.store, reason=reason)
        now = self._clock.monotonic_ns()
        if now - run.begun_ns > self._lived_ns:
            self._pause_s = self._first_pause_s
        place = replace(self._order.place, down_since=self._clock.utc_ns() - (now - run.heard_ns))
        self._order = replace(self._order, place=place)
        self._put_off(now, f"its process ended ({reason})")

    def _put_off(self, now: int, reason: str) -> None:
        self._change(cause="recorder_down", detail=reason)
        self._due_ns = now + round(self._pause_s * 1e9)
        self._pause_s = min(_MAX_PAUSE_FACTOR * self._first_pause_s, 2 * self._pause_s)

    def _end(self, run: _Run) -> None:
        """Let it finish its files; it is left behind if its store hangs."""
        self._run_now = None
        self._send(run)
        with suppress(OSError):
            run.channel.send([Stop()])
        finish(run.process, _END_S, _REAP_S)
        with suppress(OSError, ValueError):
            while (received := run.channel.receive()) and received[0]:
                for message in received[0]:
                    self._on_message(run, message)
        run.channel.close()


def _exit_message(code: int | None) -> str:
    if code is None:
        return "it cannot be killed: its file system holds it"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
