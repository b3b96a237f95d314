"""Sends traces to a collector, whatever that does: nothing else waits for it."""

from __future__ import annotations

import gzip
import random
import ssl
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from time import monotonic

import msgspec
import structlog

from daemon import __version__
from daemon.lifecycle import ALL_ENDED, ThreadPart
from daemon.system.http_client import HttpAnswer, HttpConnection, HttpRequest, Reach
from daemon.system.runtime import Runtime
from daemon.system.watchdog import Pulse
from daemon.tracing.record import Record, SentFrame
from daemon.tracing.settings import Settings, reason_of
from daemon.tracing.spans import request_of

log = structlog.get_logger(__name__)
OnSent = Callable[[Sequence[SentFrame]], None]
HEADERS = {
    "Content-Type": "application/json",
    "Content-Encoding": "gzip",
    "User-Agent": f"lookout/{__version__}",
}
MAX_WAITING = 1000
_MAX_AT_ONCE = 100
_GATHER_S = 1.0
_CALL_S, _LAST_S = 10.0, 1.0  # of a request; of all that are made at the end
MAX_ANSWER = 64 << 10
_TRIES = 8
_LONGEST_PAUSE_S, _LONGEST_ASKED_S = 60.0, 600.0
_AGAIN = (429, 502, 503, 504)  # by the specification of OTLP, and no others
_LOG_EVERY_NS = 60_000_000_000
# Causes for which a trace is dropped. `limit` is of frames for which none was made.
CAUSES = ("limit", "queue_full", "unreachable", "refused", "shutdown")


@dataclass(frozen=True)
class ExporterFigures:
    """
    Attributes:
        sent: traces that the collector has taken.
        waiting: that are not sent yet.
        dropped: by cause, all of `CAUSES`.
        rejected_spans: of traces that were taken, those that the collector has refused.
    """

    sent: int
    waiting: int
    dropped: Mapping[str, int]
    rejected_spans: int


@dataclass
class _Batch:
    """
    Attributes:
        body: of the request, compressed.
        tries: that have failed.
    """

    records: list[Record] = field(default_factory=list)
    body: bytes = b""
    tries: int = 0


class _Refusal(msgspec.Struct, rename="camel"):
    rejected_spans: int | str = 0


class _Answer(msgspec.Struct, rename="camel"):
    partial_success: _Refusal | None = None


class Exporter(ThreadPart):
    """The queue of traces, and the thread `traces`, which sends them.

    Args:
        on_sent: called with the published frames whose traces the collector has taken, all of their spans.

    Attributes:
        settings: as given.
    """

    def __init__(self, settings: Settings, on_sent: OnSent | None, runtime: Runtime) -> None:
        super().__init__("traces", runtime, is_vital=False)
        self.settings, self._on_sent = settings, on_sent
        tls = ssl.create_default_context() if settings.is_https else None
        self._connection = HttpConnection(settings.address, tls, Reach(answer_bytes=MAX_ANSWER))
        self._lock = threading.Lock()
        self._queue: deque[Record] = deque()
        self._batch = _Batch()
        self._dropped = Counter(dict.fromkeys(CAUSES, 0))
        self._sent = self._rejected = 0
        self._told_ns: int | None = None  # of trouble
        self._is_in_trouble = False
        self._random = random.Random()  # noqa: S311 - so that daemons do not try at once

    def put(self, record: Record) -> None:
        """Any thread may call it. When the queue is full the oldest trace is dropped: a newer one is worth more."""
        with self._lock:
            if len(self._queue) + len(self._batch.records) >= MAX_WAITING:
                self._queue.popleft()
                self._dropped["queue_full"] += 1
            self._queue.append(record)

    @property
    def waiting(self) -> list[Record]:
        """Those that are not sent yet, the oldest first."""
        with self._lock:
            return [*self._batch.records, *self._queue]

    def figures(self, *, limit: int) -> ExporterFigures:
        """
        Args:
            limit: frames for which no trace was made.
        """
        with self._lock:
            waiting = len(self._queue) + len(self._batch.records)
            return ExporterFigures(self._sent, waiting, {**self._dropped, "limit": limit}, self._rejected)

    def work(self, pulse: Pulse) -> None:
        log.info("traces are sent", endpoint=self.settings.shown, every=self.settings.every)
        pulse.rest()  # nothing waits for it, and each call has a limit
        pause_s = _GATHER_S
        while not self._clock.wait(self.ending, pause_s):
            pause_s = self._turn(monotonic() + _CALL_S)
        self._send_rest()

    def join(self, seconds: float) -> Sequence[str]:
        """A request that hangs is cut off. A thread that looks up a name is left behind: it holds nothing of the
        daemon."""
        if self.has_started:
            self._thread.join(min(seconds, _LAST_S))
            if self.is_alive():
                self._connection.interrupt()
                self._thread.join(min(seconds, _GATHER_S / 10))
        else:
            self._close()
        return ALL_ENDED

    def on_error(self, _: Exception) -> None:
        """The daemon goes on without traces. The thread is gone, so the queue drops what comes."""
        log.exception("traces are no longer sent: the daemon goes on")

    def close(self) -> None:
        self._connection.close()

    def _turn(self, until: float) -> float:
        """Send what waits, once; returns the pause until the next time, s."""
        batch = self._batch
        if not batch.records and not self._take():
            return _GATHER_S
        try:
            headers = {**self.settings.current_headers(), **HEADERS}
            request = HttpRequest("POST", self.settings.path, batch.body, headers)
            answer = self._connection.exchange(request, until)
        except (OSError, HTTPException, ValueError) as error:  # ValueError: a host that is no name, a line of headers
            return self._try_again(reason_of(error))
        if 200 <= answer.status < 300:
            self._note_sent(answer)
            return _GATHER_S if len(self._queue) < _MAX_AT_ONCE else 0.0
        if answer.status in _AGAIN:
            return self._try_again(f"it answers {answer.status}", answer.headers.get("retry-after", ""))
        self._drop("refused")
        self._note_trouble(f"it answers {answer.status}")
        return _GATHER_S

    def _take(self) -> bool:
        """Make the next batch; returns whether there is one."""
        with self._lock:
            records = [self._queue.popleft() for _ in range(min(_MAX_AT_ONCE, len(self._queue)))]
            self._batch.records = records
        self._batch.tries = 0
        if records:
            self._batch.body = compressed(records, self.settings.resource)
        return bool(records)

    def _note_sent(self, answer: HttpAnswer) -> None:
        rejected = _rejected(answer.content)
        with self._lock:
            records, self._batch.records = self._batch.records, []
            self._sent += len(records)
            self._rejected += rejected
        if self._on_sent and not rejected:  # otherwise nobody knows which
            self._on_sent([record for record in records if isinstance(record, SentFrame)])
        if rejected:
            self._note_trouble(f"it has rejected {rejected} spans")
        elif self._is_in_trouble:
            self._is_in_trouble = False
            log.info("traces are sent again", endpoint=self.settings.shown)

    def _try_again(self, reason: str, asked: str = "") -> float:
        """Keep the batch for another time, unless it was tried often; returns the pause, s."""
        self._batch.tries += 1
        tries = self._batch.tries
        if tries >= _TRIES:
            self._drop("unreachable")
        self._note_trouble(reason)
        if asked.isascii() and asked.isdecimal() and len(asked) < 10:  # a time of day is of another host's clock
            return min(max(float(asked), _GATHER_S), _LONGEST_ASKED_S)
        return min(2.0 ** (tries - 1), _LONGEST_PAUSE_S) * self._random.uniform(0.8, 1.2)

    def _drop(self, cause: str) -> None:
        with self._lock:
            self._dropped[cause] += len(self._batch.records)
            self._batch.records = []

    def _note_trouble(self, reason: str) -> None:
        """One line a minute, at most."""
        self._is_in_trouble = True
        now_ns = self._clock.monotonic_ns()
        if self._told_ns is not None and now_ns - self._told_ns < _LOG_EVERY_NS:
            return
        self._told_ns = now_ns
        figures = self.figures(limit=0)
        dropped = sum(figures.dropped.values())
        log.warning(
            "traces do not reach the collector", endpoint=self.settings.shown, reason=reason,
            waiting=figures.waiting, dropped=dropped,
        )  # fmt: skip

    def _send_rest(self) -> None:
        """One last time, within the time; what is left is counted."""
        until, sent = monotonic() + _LAST_S, -1
        while sent != self._sent:
            sent = self._sent
            self._turn(until)
        self._drop("shutdown")
        with self._lock:
            self._dropped["shutdown"] += len(self._queue)
            self._queue.clear()
        if lost := sum(self._dropped.values()):
            log.warning("traces were lost", endpoint=self.settings.shown, dropped=lost, sent=self._sent)


def compressed(records: Sequence[Record], resource: Mapping[str, str]) -> bytes:
    """The body of a request."""
    return gzip.compress(request_of(records, resource), 5)


def _rejected(content: bytes) -> int:
    """Spans that a collector has not taken, by its answer; what cannot be read is a success."""
    try:
        found = msgspec.json.decode(content, type=_Answer).partial_success
        return max(0, int(found.rejected_spans)) if found else 0
    except (msgspec.DecodeError, ValueError):
        return 0
