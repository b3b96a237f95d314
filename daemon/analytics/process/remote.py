"""In the daemon's process: rules that another process evaluates."""

from __future__ import annotations

import math
import os
import select
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

import structlog

from daemon.analytics.event_publisher import EventPublisher
from daemon.analytics.process.main import RulesOrder
from daemon.analytics.process.pipe import PipeReader, PipeWriter
from daemon.analytics.process.protocol import (
    Configured,
    Failed,
    Forgotten,
    Found,
    FromRules,
    Labelled,
    Mark,
    Passed,
    RulesMessage,
    StateChanged,
    Ticked,
    observed,
)
from daemon.analytics.source_rules import RuleSet
from daemon.analytics.track import SeenTracks
from daemon.errors import LookoutError
from daemon.pipeline.frames import FrameInfo
from daemon.system.children import Child, finish, spawn
from daemon.system.runtime import Runtime
from daemon.system.stop_token import StopToken
from lookout.messages import State

log = structlog.get_logger(__name__)
_IDLE_MS = 200
_GATHER_S = 0.01  # events are gathered this long, so that this thread wakes less often between lanes
_EXIT_S = 1.0


@dataclass(frozen=True)
class _Child:
    """The process, and the pipes from it and to it."""

    process: Child
    reader: PipeReader
    writer: PipeWriter


class RulesProcess(threading.Thread):
    """Implements `daemon.analytics.rules.Rules` in a process of its own, which is started for the first rule.

    Lanes share one interpreter, and rules would take a third of its time; nothing in a frame's message waits for them.
    A lane waits only if the process is far behind. The thread takes the events back.

    The daemon ends if the process does: what rules know of their tracks is in no other place.
    """

    def __init__(self, order: RulesOrder, events: EventPublisher, runtime: Runtime) -> None:
        super().__init__(name="rules", daemon=True)
        self._order, self._events, self._runtime = order, events, runtime
        self._child: _Child | None = None
        self._sources: frozenset[str] = frozenset()  # with rules
        self._labels: dict[tuple[str, ...], int] = {}
        self._marks = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()  # for `Passed`, by number
        self._lock = threading.Lock()  # of the order of marks and of labels
        self._problem: str | None = None  # why the process will end, by its own message
        self._beginning = threading.Lock()  # a process begins, or never more
        self._closing, self._ended = StopToken(), StopToken()
        self._kill_at = math.inf  # monotonic seconds
        self._given_up = False  # it is killed, because it does not answer
        self._delivered = False  # all that it has found, before it ends

    @property
    def pids(self) -> list[int]:
        child = self._child
        return [child.process.pid] if child and child.process.returncode is None else []

    @property
    def has_rules(self) -> bool:
        return bool(self._sources)

    def prepare(self, rules: Mapping[str, RuleSet]) -> None:
        """Start the process with the first rule. After `stop` none begins.

        Raises:
            LookoutError: it cannot be started.
        """
        if self._child is None and any(own.rules for own in rules.values()):
            self._begin()

    def configure(self, rules: Mapping[str, RuleSet]) -> None:
        """Prepare, and replace the rules of all sources; returns when all events of before are delivered.

        Raises:
            LookoutError: see `prepare`.
        """
        self.prepare(rules)
        self._send(Configured(dict(rules)))
        if self._sources:
            self._settle()
        self._sources = frozenset(source for source, own in rules.items() if own.rules and self._child)

    def forget(self, source: str) -> None:
        """Remove a source; returns when all its events are delivered."""
        if self._child:
            self._sources -= {source}
            self._send(Forgotten(source))
            self._settle()

    def on_state(self, source: str, state: State, now_ns: int) -> None:
        self._send(StateChanged(source, state, now_ns))

    def tick(self, now_ns: int) -> None:
        self._send(Ticked(now_ns))
        self.after(lambda: None)  # so that a process that hangs is found

    def observe(
        self, frames: Sequence[FrameInfo], tracks: Iterable[SeenTracks | None], labels: tuple[str, ...]
    ) -> None:
        ruled = self._sources
        rows = [(frame, one) for frame, one in zip(frames, tracks) if one is not None and frame.source in ruled]
        if rows:
            number = self._labels.get(labels) or self._number(labels)
            self._send(observed(number, [frame for frame, _ in rows], [one for _, one in rows]))

    def after(self, call: Callable[[], None]) -> None:
        if self._child is None or self._delivered:
            call()
            return
        self._mark(call)
        if self._ended.is_set:
            self._give_up_waiting()

    def flush(self, seconds: float) -> bool:
        if self._child is None:
            return True
        until, done = monotonic() + seconds, StopToken()
        with suppress(TimeoutError):
            self._mark(done.set, seconds)
        if self._ended.is_set:
            self._give_up_waiting()
        return done.wait(until - monotonic())

    def end_by(self, seconds: float) -> None:
        """Kill the process after this time. All that wait for it go on then, also the thread that would call `stop`."""
        self._kill_at = monotonic() + seconds

    def stop(self, timeout_s: float) -> None:
        """Deliver the last events, and end the process. A second call does nothing.

        Args:
            timeout_s: 0 to kill the process, whose events nobody wants.
        """
        with self._beginning:
            if self._closing.is_set:
                return
            self._closing.set()
            child = self._child
        if child is None:
            return
        if timeout_s <= 0:
            self._given_up = True
            child.process.kill()
        else:
            self._delivered = self.flush(timeout_s)
            if not self._delivered:
                self._give_up(child)
        child.writer.close()
        self.join(_EXIT_S)
        finish(child.process, _EXIT_S)

    def run(self) -> None:
        child = self._child
        if child is None:
            return
        try:
            self._serve(child)
        except Exception as error:
            log.exception("events of rules cannot be taken")
            self._problem = self._problem or f"{type(error).__name__}: {error}"
        finally:
            child.reader.close()
            self._ended.set()
            self._tell_end(child)
            self._give_up_waiting()

    # ---------------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Start the process and the thread."""
        with self._beginning:
            if self._closing.is_set:
                return
            child = self._child = self._begun()
            try:
                self.start()
            except RuntimeError as error:  # the system gives no thread
                self._child = None
                child.writer.close()
                child.reader.close()
                finish(child.process, 0)  # it has just begun
                raise LookoutError(f"no thread can be started for rules: {error}") from error

    def _begun(self) -> _Child:
        """Start the process."""
        ends: list[int] = []
        try:
            ends += os.pipe()
            ends += os.pipe()
            reading, writing = ends[2], ends[1]
            process = spawn("daemon.analytics.process.main", self._order, [ends[0], ends[3]])
        except OSError as error:
            for end in ends:
                os.close(end)
            raise LookoutError(f"no process can be started for rules: {error.strerror}") from error
        os.close(ends[0])
        os.close(ends[3])
        return _Child(process, PipeReader(reading, FromRules), PipeWriter(writing))

    def _serve(self, child: _Child) -> None:
        """Until the process has closed its end."""
        poller, reader = select.poll(), child.reader
        poller.register(reader.fd, select.POLLIN)
        with self._runtime.watchdog.pulse(self.name) as pulse:
            while True:
                if not self._waiting:
                    pulse.beat()
                if monotonic() >= self._kill_at:
                    self._give_up(child)
                if not poller.poll(_IDLE_MS):
                    continue
                messages = reader.receive()
                if messages is None:
                    return
                for message in messages:
                    self._on_message(message)
                pulse.beat()
                self._runtime.clock.wait(self._closing, _GATHER_S)

    def _on_message(self, message: Any) -> None:
        if isinstance(message, Found):
            for event in message.events:
                self._events.hold(event)
            self._events.deliver()
        elif isinstance(message, Passed):
            self._call_waiting(message.number)
        elif isinstance(message, Failed):
            self._problem = message.reason

    def _call_waiting(self, number: int) -> None:
        while self._waiting and self._waiting[0][0] <= number:
            self._waiting.popleft()[1]()

    def _give_up_waiting(self) -> None:
        """Call all that wait for a process that has ended."""
        with suppress(IndexError):
            while True:
                self._waiting.popleft()[1]()

    def _give_up(self, child: _Child) -> None:
        """Kill a process that does not answer."""
        if not self._given_up:
            self._given_up = True
            log.warning("the process of rules does not answer: its last events are lost")
        child.process.kill()

    def _tell_end(self, child: _Child) -> None:
        """Tell why the process has ended, unless that was wanted."""
        if self._given_up:
            return
        if not self._closing.is_set:
            self._runtime.on_failure(f"the process of rules ended: {self._reason(child.process)}")
        elif self._waiting and not self._delivered:
            log.warning("the process of rules ended: its last events are lost", reason=self._reason(child.process))

    def _reason(self, process: Child) -> str:
        """Why the process has ended."""
        if self._problem:
            return self._problem
        with suppress(subprocess.TimeoutExpired):
            process.wait(_EXIT_S)
        code = process.returncode
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

    def _mark(self, call: Callable[[], None], timeout_s: float | None = None) -> None:
        """
        Raises:
            TimeoutError: see `PipeWriter.send`.
        """
        if not self._lock.acquire(timeout=-1 if timeout_s is None else timeout_s):
            raise TimeoutError
        try:
            self._marks += 1
            self._waiting.append((self._marks, call))
            self._send(Mark(self._marks), timeout_s)
        finally:
            self._lock.release()

    def _number(self, labels: tuple[str, ...]) -> int:
        """The number of a model's labels, which the process knows from now on."""
        with self._lock:
            if labels not in self._labels:
                number = len(self._labels) + 1
                self._send(Labelled(number, labels))
                self._labels[labels] = number
            return self._labels[labels]

    def _settle(self) -> None:
        """Wait until all that was sent is done; a process that hangs is ended by the watchdog."""
        done = StopToken()
        self.after(done.set)
        done.wait()

    def _send(self, message: RulesMessage, timeout_s: float | None = None) -> None:
        if self._child:
            with suppress(BrokenPipeError):  # it has ended, which `run` tells
                self._child.writer.send([message], timeout_s)
