"""One stream that is recorded alone: connect, put packets into rings; when the connection breaks, wait and retry."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import structlog

from daemon.capture.processes.tape import SourceTape
from daemon.capture.timing import Backoff
from daemon.clock import Clock
from daemon.config.sources import AvConfig, ReconnectConfig
from daemon.errors import LoginRefusedError, SourceError
from daemon.recording.streams.protocol import StreamChanged
from daemon.sources.packet_stream import PacketStream
from daemon.system.stop_token import StopToken
from lookout.messages import State

log = structlog.get_logger(__name__)
_BLOCKED_FACTOR = 15  # times `stall_after_s`, after which a library will not return
Tell = Callable[[StreamChanged], None]


@dataclass(frozen=True)
class StreamRules:
    """For all streams.

    Attributes:
        stall_after_s: without a packet for so long, a stream is stalled.
    """

    reconnect: ReconnectConfig
    stall_after_s: float


class RecordedStream:
    """
    Args:
        number: of the stream.
        tape: where its packets go.
        tell: called with each of its states, by any thread.
    """

    def __init__(
        self, number: int, config: AvConfig, tape: SourceTape, rules: StreamRules, tell: Tell, clock: Clock
    ) -> None:
        self._number, self.config, self.tape = number, config, tape
        self._rules, self._tell, self._clock = rules, tell, clock
        self._backoff, self._stop = Backoff(rules.reconnect), StopToken()
        self._lock = threading.Lock()  # of its state
        self._state: State = "connecting"
        self._session = ""
        self._heard_ns = clock.monotonic_ns()  # of the last packet or state
        self._thread = threading.Thread(target=self._run, name=f"stream-{config.id}", daemon=True)

    def start(self) -> bool:
        """Whether the system has given a thread; otherwise its state says it."""
        try:
            self._thread.start()
        except RuntimeError as error:
            self._say("down", f"no thread can be started for it: {error}")
            return False
        return True

    def end(self) -> None:
        """Ask it to end. From now on it says nothing, and puts nothing into rings, even if its library blocks."""
        with self._lock:
            self._stop.set()

    def is_blocked(self) -> bool:
        """Whether its library will not return. A stream without a packet for a while is reported as stalled."""
        with self._lock:
            silent = (self._clock.monotonic_ns() - self._heard_ns) / 1e9
            if self._state == "up" and silent > self._rules.stall_after_s:
                self._say_locked("stalled", f"no packet for {silent:.1f} s")
            limit = max(_BLOCKED_FACTOR * self._rules.stall_after_s, 2 * self.config.read_limit_s)
            return self._state in ("connecting", "stalled") and silent > limit and self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.is_set:
            try:
                self._connection()
            except SourceError as error:
                reason, is_refused = str(error), isinstance(error, LoginRefusedError)
            except Exception as error:
                log.exception("stream failed unexpectedly", source=self.config.id)
                reason, is_refused = f"unexpected {type(error).__name__}: see the log", False
            else:
                return
            delay = self._backoff.next(refused=is_refused)
            self._say("down", reason, delay)
            self._clock.wait(self._stop, delay)

    def _connection(self) -> None:
        """Connect, and read until the stream is to end.

        Raises:
            SourceError: it cannot be connected, or broke.
        """
        session, source = secrets.token_hex(4), self.config.id
        self._session = session
        self._say("connecting")
        with closing(PacketStream(self.config)) as stream:
            while not self._stop.is_set:
                info, packet = stream.next()
                if self._stop.is_set:  # it may have been left behind
                    return
                if self.tape.is_recorded(source):
                    self.tape.record(source, session, info, packet)
                self._heard_ns = self._clock.monotonic_ns()
                if self._state != "up":
                    self._backoff.reset()
                    self._say("up")

    def _say(self, state: State, reason: str | None = None, retry_in_s: float | None = None) -> None:
        with self._lock:
            self._say_locked(state, reason, retry_in_s)

    def _say_locked(self, state: State, reason: str | None = None, retry_in_s: float | None = None) -> None:
        if self._stop.is_set:
            return
        self._state = state
        if state != "stalled":
            self._heard_ns = self._clock.monotonic_ns()
        self._tell(StreamChanged(self._number, self._session, state, reason, retry_in_s, self._clock.utc_ns()))
