"""A part with a child process, which is started again when it dies; they talk over a channel."""

from __future__ import annotations

import os
import select
import signal
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

import structlog

from daemon.capture.processes.channel import Channel, pair
from daemon.capture.processes.protocol import ProcessMessage
from daemon.lifecycle import ThreadPart
from daemon.system.children import Child, finish, spawn
from daemon.system.runtime import Runtime
from daemon.system.watchdog import Pulse

log = structlog.get_logger(__name__)
_POLL_MS = 200
_REAP_S = 0.2
_MAX_PAUSE_FACTOR = 30  # times the first pause


class Shared(Protocol):
    """Something with a descriptor, which is valid as long as this."""

    @property
    def fd(self) -> int: ...


class Link:
    """One child process, as long as it lives. One thread uses it.

    Attributes:
        begun_ns, heard_ns: monotonic times of its start and of its last message.
    """

    def __init__(self, process: Child, channel: Channel, now_ns: int) -> None:
        self.begun_ns = self.heard_ns = now_ns
        self.channel = channel
        self._process = process
        self._unsent: deque[tuple[ProcessMessage, Shared | None]] = deque()
        self._problem: str | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_spoken(self) -> bool:
        return self.heard_ns > self.begun_ns

    def put(self, message: ProcessMessage, shared: Shared | None = None) -> None:
        """Queue a message, with a descriptor."""
        self._unsent.append((message, shared))

    def send(self) -> None:
        """Send what is queued, as far as the socket takes it."""
        try:
            while self._unsent:
                message, shared = self._unsent[0]
                if not self.channel.send([message], shared.fd if shared else None):
                    return
                self._unsent.popleft()
        except OSError:
            self._unsent.clear()  # it has ended: its last messages are still to be read

    def receive(self, now_ns: int) -> list[ProcessMessage] | None:
        """The messages of one packet; None if it has ended, or talks nonsense and is killed."""
        try:
            received = self.channel.receive()
        except (OSError, ValueError) as error:
            self.kill(f"{type(error).__name__}: {error}")
            return None
        if received is None:
            return None
        if received[0]:
            self.heard_ns = now_ns
        return received[0]

    def blame(self, problem: str) -> None:
        """Say why it will end; the first reason counts."""
        self._problem = self._problem or problem

    def kill(self, problem: str) -> None:
        self.blame(problem)
        self._process.kill()

    def finish(self, grace_s: float) -> str:
        """Wait for its end, kill it after the grace, and leave it behind if that does not help. Returns the reason."""
        finish(self._process, grace_s, _REAP_S)
        return self._problem or _exit_message(self._process.returncode)


class SupervisedProcess(ThreadPart):
    """Subclasses say what the process is told, and what its messages mean.

    Args:
        program: the module of the process.
        kind: union of its messages.
        end_s: for its end, when the part ends.
    """

    def __init__(self, name: str, program: str, kind: object, end_s: float, runtime: Runtime) -> None:
        super().__init__(name, runtime, is_vital=False)
        self._program, self._kind, self._end_s, self._limits = program, kind, end_s, runtime.limits
        self._link: Link | None = None
        self._due_ns, self._pause_s = 0, runtime.limits.worker_pause
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._waker, False)
        self.ending.on_set(self.ring_bell)

    @property
    def pids(self) -> list[int]:
        link = self._link
        return [link.pid] if link else []

    def ring_bell(self) -> None:
        """Have the thread look; from any thread."""
        with suppress(OSError):  # the pipe is full, or the part has ended
            os.write(self._waker, b".")

    # --- for subclasses --------------------------------------------------------------------------------------------

    @property
    def is_wanted(self) -> bool:
        """Whether there is something to do for a process."""
        raise NotImplementedError

    @property
    def order(self) -> object:
        """The configuration of the next process."""
        raise NotImplementedError

    def on_begun(self, link: Link) -> None:
        """Another process has begun."""

    def on_turn(self, link: Link, now_ns: int) -> None:
        """Queue what it is to be told; called now and then."""

    def on_message(self, link: Link, message: Any) -> None: ...

    def on_lost(self, reason: str, retry_in_s: float) -> None:
        """There is no process, and another one is tried after a pause."""

    @property
    def farewell(self) -> ProcessMessage:
        """The message that makes the process end."""
        raise NotImplementedError

    # --- the thread ------------------------------------------------------------------------------------------------

    def work(self, pulse: Pulse) -> None:
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        while not self.ending.is_set:
            pulse.beat()
            link = self._turn(self._clock.monotonic_ns())
            if link:
                poller.register(link.channel.socket, select.POLLIN)
            ready: Mapping[int, int] = dict(poller.poll(_POLL_MS))
            if link:
                poller.unregister(link.channel.socket)
            if self._wake in ready:
                with suppress(BlockingIOError):
                    os.read(self._wake, 4096)
            if link and link.channel.socket.fileno() in ready:
                self._receive(link)
        if self._link:
            self._end(self._link)

    def close(self) -> None:
        wake, self._wake, waker, self._waker = self._wake, -1, self._waker, -1
        os.close(waker)
        os.close(wake)

    def lose(self, link: Link, problem: str) -> None:
        """Give a process up."""
        link.kill(problem)
        self._lost(link)

    def _turn(self, now: int) -> Link | None:
        link = self._link
        if link is None:
            if not self.is_wanted or now < self._due_ns:
                return None
            link = self._begin(now)
            if link is None:
                return None
        self.on_turn(link, now)
        link.send()
        return self._link

    def _begin(self, now: int) -> Link | None:
        try:
            mine, theirs = pair()
            try:
                process = spawn(self._program, self.order, [theirs.fileno()])
            except BaseException:
                mine.close()
                raise
            finally:
                theirs.close()
        except OSError as error:
            self._put_off(f"no process can be started for it: {error.strerror}")
            return None
        self._link = link = Link(process, Channel(mine, self._kind), now)
        self.on_begun(link)
        return link

    def _receive(self, link: Link) -> None:
        messages = link.receive(self._clock.monotonic_ns())
        if messages is None:
            self._lost(link)
            return
        for message in messages:
            self.on_message(link, message)

    def _lost(self, link: Link) -> None:
        self._link = None
        link.channel.close()
        reason = link.finish(_REAP_S)
        log.error("a process ended: another one follows", process=self.name, reason=reason)
        if self._clock.monotonic_ns() - link.begun_ns > self._limits.worker_lived * 1e9:
            self._pause_s = self._limits.worker_pause
        self._put_off(f"its process ended ({reason})")

    def _put_off(self, reason: str) -> None:
        pause_s = self._pause_s
        self._due_ns = self._clock.monotonic_ns() + round(pause_s * 1e9)
        self._pause_s = min(_MAX_PAUSE_FACTOR * self._limits.worker_pause, 2 * pause_s)
        self.on_lost(reason, pause_s)

    def _end(self, link: Link) -> None:
        """End the process, whatever it does, and hear its last words."""
        self._link = None
        link.put(self.farewell)
        link.send()
        link.finish(self._end_s)
        while messages := link.receive(self._clock.monotonic_ns()):
            for message in messages:
                self.on_message(link, message)
        link.channel.close()


def _exit_message(code: int | None) -> str:
    if code is None:
        return "it cannot be killed: the kernel holds it"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
