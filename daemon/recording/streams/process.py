"""In the daemon's process: the process of streams that are recorded alone, and its successor when it dies."""

from __future__ import annotations

import itertools
import os
import pickle
import select
import signal
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog

from daemon.capture.processes.channel import Channel, pair
from daemon.capture.processes.protocol import NoRecord, ProcessMessage, Record
from daemon.config.sources import AvConfig
from daemon.lifecycle import ThreadPart
from daemon.recording.directory import RingDirectory
from daemon.recording.ring import Ring
from daemon.recording.streams.main import StreamsOrder
from daemon.recording.streams.protocol import Begin, End, Failed, FromStreams, Stop, StreamChanged
from daemon.redact import Url
from daemon.system.children import Child, finish, spawn
from daemon.system.runtime import Runtime
from daemon.system.watchdog import Pulse
from lookoutd.messages import State

log = structlog.get_logger(__name__)
_PROGRAM = "daemon.recording.streams.main"
_POLL_MS = 200
_GRACE_S, _REAP_S = 0.3, 0.2  # for its end, in a stop
_MAX_PAUSE_FACTOR = 30  # times the first pause


class StreamState(NamedTuple):
    """A stream's state.

    Attributes:
        session: empty before its first connection.
        state, reason, retry_in_s: as those of sources.
        utc: since when, ns.
    """

    source: str
    session: str
    state: State
    reason: str | None
    retry_in_s: float | None
    utc: int


@dataclass
class _StreamsRun:
    """One process, and what it was told.

    Attributes:
        rings: by number of the stream.
        problem: why it will end.
    """

    process: Child
    channel: Channel
    started_ns: int
    heard_ns: int
    numbers: dict[str, int] = field(default_factory=dict)
    configs: dict[str, AvConfig] = field(default_factory=dict)
    rings: dict[str, tuple[Ring, ...]] = field(default_factory=dict)
    unsent: deque[tuple[ProcessMessage, Ring | None]] = field(default_factory=deque)
    problem: str | None = None


def stream_of(source: AvConfig, url: Url) -> AvConfig:
    """The stream of `record.url`: as the source is, with its user name and password."""
    return AvConfig(
        id=source.id, url=url, user=source.user, password=source.password, kind="live", transport=source.transport,
        open_timeout_s=source.open_timeout_s, read_timeout_s=source.read_timeout_s, rotate=source.rotate,
        options=source.options,
    )  # fmt: skip


class StreamsProcess(ThreadPart):
    """Keeps the streams connected that are wanted, in a process that is started for the first of them.

    Their packets go into the rings of `RingDirectory.stream_rings`.

    Args:
        tell: called with each state of each stream, by the thread of this part.
    """

    def __init__(
        self, directory: RingDirectory, order: StreamsOrder, tell: Callable[[StreamState], None], runtime: Runtime
    ) -> None:
        super().__init__("record-streams", runtime, is_vital=False)
        self._directory, self._order, self._tell = directory, order, tell
        self._limits = runtime.limits
        self._wanted: Mapping[str, AvConfig] = {}
        self._numbers = itertools.count()
        self._run_now: _StreamsRun | None = None
        self._due_ns, self._pause_s = 0, self._limits.worker_pause
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._waker, False)
        self.ending.on_set(self._ring)

    @property
    def pids(self) -> list[int]:
        run = self._run_now
        return [run.process.pid] if run else []

    def want(self, streams: Mapping[str, AvConfig]) -> None:
        """Have these streams, by source, and no others; from any thread. One with another configuration connects
        anew."""
        self._wanted = dict(streams)
        self._ring()

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

    def _ring(self) -> None:
        with suppress(OSError):  # the pipe is full, or the part has ended
            os.write(self._waker, b".")

    # --- the process -------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Start the process if it is needed, tell it what has changed, and look whether it lives."""
        now, run = self._clock.monotonic_ns(), self._run_now
        if run is None:
            if not self._wanted or now < self._due_ns:
                return
            run = self._started(now)
            if run is None:
                return
        self._tell_changes(run)
        try:
            while run.unsent and self._sent(run, *run.unsent[0]):
                run.unsent.popleft()
        except OSError:
            run.unsent.clear()  # it has ended: its last messages are still to be read
        limit = self._limits.worker_silence if run.heard_ns > run.started_ns else self._limits.worker_start
        if now - run.heard_ns > limit * 1e9:
            run.problem = run.problem or f"no sign of life for {limit:.0f} s"
            run.process.kill()
            self._lost(run)

    def _started(self, now: int) -> _StreamsRun | None:
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
            self._put_off(self._wanted, f"no process can be started for it: {error.strerror}")
            return None
        self._run_now = run = _StreamsRun(process, Channel(mine, FromStreams), now, now)
        return run

    def _sent(self, run: _StreamsRun, message: ProcessMessage, ring: Ring | None) -> bool:
        return run.channel.send([message], ring.fd if ring else None)

    def _tell_changes(self, run: _StreamsRun) -> None:
        wanted, rings = self._wanted, self._directory.stream_rings
        for source in [source for source, config in run.configs.items() if wanted.get(source) != config]:
            run.unsent.append((End(run.numbers.pop(source)), None))
            del run.configs[source]
            run.rings.pop(source, None)
        for source, config in wanted.items():
            if source not in run.configs:
                run.numbers[source], run.configs[source] = next(self._numbers), config
                run.unsent.append((Begin(run.numbers[source], pickle.dumps(config)), None))
            number, own = run.numbers[source], rings.get(source, ())
            if own == run.rings.get(source, ()):
                continue
            run.rings[source] = own
            record = Record(number, len(own), pickle.dumps(self._directory.make_tape))
            run.unsent.extend([(record, ring) for ring in own] or [(NoRecord(number), None)])

    def _receive(self, run: _StreamsRun) -> None:
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

    def _on_message(self, run: _StreamsRun, message: Any) -> None:
        if isinstance(message, Failed):
            run.problem = message.reason
        elif isinstance(message, StreamChanged):
            source = next((source for source, number in run.numbers.items() if number == message.stream), None)
            if source is not None:
                self._tell(
                    StreamState(source, message.session, message.state, message.reason, message.retry_in_s, message.utc)
                )

    def _lost(self, run: _StreamsRun) -> None:
        """The process has ended, or does not answer: another one begins after a pause."""
        self._run_now = None
        run.channel.close()
        finish(run.process, _GRACE_S, _REAP_S)
        reason = run.problem or _exit_message(run.process.returncode)
        log.error("process of recorded streams ended", reason=reason)
        if self._clock.monotonic_ns() - run.started_ns > self._limits.worker_lived * 1e9:
            self._pause_s = self._limits.worker_pause
        self._put_off(run.configs, f"the process that read it ended ({reason})")

    def _put_off(self, sources: Mapping[str, AvConfig], reason: str) -> None:
        """Report streams as down, until the next process begins."""
        self._due_ns = self._clock.monotonic_ns() + round(self._pause_s * 1e9)
        for source in sources:
            self._tell(StreamState(source, "", "down", reason, self._pause_s, self._clock.utc_ns()))
        self._pause_s = min(_MAX_PAUSE_FACTOR * self._limits.worker_pause, 2 * self._pause_s)

    def _end(self, run: _StreamsRun) -> None:
        """End the process, whatever it does."""
        self._run_now = None
        with suppress(OSError):
            run.channel.send([Stop()])
        finish(run.process, _GRACE_S, _REAP_S)
        run.channel.close()


def _exit_message(code: int | None) -> str:
    if code is None:
        return "it cannot be killed: the kernel holds it"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
