"""A capture process.

It ends when it is stopped and its sources have ended, or when the daemon is gone. It ignores signals to the process
group: the daemon handles them.
"""

from __future__ import annotations

import os
import pickle
import resource
import select
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import structlog

from daemon.capture.camera import ThreadContext
from daemon.capture.capture import Capture
from daemon.capture.processes.channel import Channel, NoDescriptorError
from daemon.capture.processes.forwarder import FrameForwarder
from daemon.capture.processes.protocol import (
    Abandon,
    Add,
    AdmissionReply,
    Failed,
    NoRecord,
    ProcessMessage,
    QuotaChanged,
    Record,
    Remove,
    Retry,
    Returned,
    StopAll,
    ToCapture,
    Watch,
)
from daemon.capture.processes.sender import FrameSender
from daemon.capture.processes.tape import SourceTape
from daemon.capture.sinks import CaptureSinks
from daemon.capture.threads import CaptureThreads, capture_kind
from daemon.capture.timing import Backoff
from daemon.clock import Clock, SystemClock
from daemon.config.root import LogConfig
from daemon.config.sources import ReconnectConfig, SourceConfig
from daemon.errors import SourceError
from daemon.log import logging
from daemon.pipeline.board_rules import PATIENT_DEPTH
from daemon.sources.decode import DecoderBackend, DecoderPool
from daemon.sources.port import Source
from daemon.system.tuning import configure_gc_and_switch_interval

log = structlog.get_logger(__name__)
_TICK_S = 0.25


@dataclass(frozen=True)
class Task:
    """One source for a capture process.

    Attributes:
        capture: number of the capture at both ends.
        seq: number of the first frame.
    """

    capture: int
    source: SourceConfig
    seq: int


@dataclass(frozen=True)
class WorkerConfig:
    """Configuration of a capture process.

    Attributes:
        part: its share of the GPU's decoder and memory.
        has_admission: the daemon admits connections.
        depth, slots: see `FrameForwarder`.
        niceness: added to the daemon's own.
        memory_bytes: limit of private memory; None for no limit.
    """

    make_source: Callable[[SourceConfig, DecoderPool], Source]
    backend: DecoderBackend
    live: bool
    depth: int
    slots: int
    reconnect: ReconnectConfig
    has_admission: bool
    stall_after_s: float
    settle_s: float
    log: LogConfig
    tasks: list[Task] = field(default_factory=list)
    part: float = 1.0
    niceness: int = 0
    memory_bytes: int | None = None


def main(config: WorkerConfig, end: int) -> int:
    """
    Args:
        end: of the socket to the daemon.
    """
    channel = Channel(socket.socket(fileno=end), ToCapture)
    os.nice(config.niceness)
    _limit_memory(config.memory_bytes)
    with logging(config.log):
        try:
            decoder_pool = config.backend.open(config.part)
        except Exception as error:  # noqa: BLE001 - the daemon reports it
            channel.send([Failed(f"{type(error).__name__}: {error}")])
            return 1
        try:
            _CaptureProcess(config, decoder_pool, channel, SystemClock()).run()
        except Exception as error:
            log.exception("capture process failed")
            with suppress(OSError):
                channel.send([Failed(f"{type(error).__name__}: {error}")])
            os._exit(1)
    sys.stderr.flush()
    os._exit(0)  # threads may be blocked in libraries


def _limit_memory(limit: int | None) -> None:
    """Let allocations beyond the limit fail, before the machine runs out of memory."""
    if limit is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (limit if hard < 0 else min(limit, hard), hard))


@dataclass
class _FailedTask:
    """A source that could not be made, and is retried."""

    task: Task
    due_ns: int
    backoff: Backoff


class _CaptureProcess:
    """Runs the captures of a process."""

    def __init__(self, config: WorkerConfig, decoder_pool: DecoderPool, channel: Channel, clock: Clock) -> None:
        self._config, self._decoder_pool, self._channel, self._clock = config, decoder_pool, channel, clock
        self._sender = FrameSender(channel, decoder_pool, clock, live=config.live)
        self._feeds: dict[int, FrameForwarder] = {}
        self._tapes: dict[int, SourceTape] = {}
        self._captures: dict[int, Capture] = {}
        self._failed: dict[int, _FailedTask] = {}
        self._stopping = False
        self._bell, self._ringer = os.pipe()  # written to when a source has ended
        first = [capture for task in config.tasks if (capture := self._make(task))]
        self._threads = CaptureThreads(
            first, decoder_pool.threads, ThreadContext(clock, self._fail, decoder_pool.make_current)
        )
        self._sending = threading.Thread(target=self._send, name="sender", daemon=True)

    def run(self) -> None:
        configure_gc_and_switch_interval()
        self._sending.start()
        self._threads.start()
        poller, socket = select.poll(), self._channel.socket.fileno()
        poller.register(socket, select.POLLIN)
        poller.register(self._bell, select.POLLIN)
        due_ns = 0
        while self._captures or not self._stopping:
            came = {fd for fd, _ in poller.poll(_TICK_S * 1000)}
            if socket in came:
                received = self._received()
                if received is None:
                    return
                for message in received[0]:
                    self._handle(message, received[1])
            now = self._clock.monotonic_ns()
            if self._bell in came:
                os.read(self._bell, 4096)
                due_ns = now
            if now >= due_ns:
                due_ns = now + round(_TICK_S * 1e9)
                self._housekeeping(now)
        self._sender.end()
        self._sending.join()

    def _received(self) -> tuple[list[ProcessMessage], int | None] | None:
        """See `Channel.receive`. A packet for whose descriptor there is no room comes without it."""
        try:
            return self._channel.receive()
        except NoDescriptorError:
            return self._channel.receive_without_descriptor(), None

    def _send(self) -> None:
        """Run the sender; without it the process is useless."""
        try:
            self._sender.run()
        except Exception as error:
            log.exception("frames cannot be sent")
            self._fail(f"{type(error).__name__}: {error}")

    def _fail(self, reason: str) -> None:
        """End the process; the daemon starts another for the same sources."""
        with suppress(OSError):
            self._channel.send([Failed(reason)])
        os._exit(1)

    def _make(self, task: Task, backoff: Backoff | None = None) -> Capture | None:
        """Make a capture; None if that fails now, which its state reports."""
        config = self._config
        live = config.live and not task.source.is_patient
        depth = PATIENT_DEPTH if config.live else config.depth
        feed = self._feeds.get(task.capture) or FrameForwarder(
            task.capture, self._sender, live=live, depth=depth, slots=config.slots, has_admission=config.has_admission
        )
        self._feeds[task.capture] = feed
        try:
            source = config.make_source(task.source, self._decoder_pool)
        except Exception as error:
            if not isinstance(error, SourceError):
                log.exception("source cannot be made", source=task.source.id)
            self._retry_later(task, feed, error, backoff)
            return None
        capture = capture_kind(source)(
            task.source,
            source,
            CaptureSinks(feed, feed, feed.announce, feed, packets=feed, recorder=self._tape_of(task.capture)),
            self._clock,
            config.reconnect,
            task.seq,
            config.settle_s,
        )
        self._captures[task.capture] = capture
        capture.end.on_set(self._ring)
        return capture

    def _tape_of(self, number: int) -> SourceTape:
        return self._tapes.setdefault(number, SourceTape())

    def _ring(self) -> None:
        os.write(self._ringer, b".")

    def _retry_later(self, task: Task, feed: FrameForwarder, error: Exception, backoff: Backoff | None) -> None:
        backoff = backoff or Backoff(self._config.reconnect)
        delay = backoff.next()
        feed.announce("", None, "down", f"it cannot be made: {type(error).__name__}: {error}", delay, None)
        self._failed[task.capture] = _FailedTask(task, self._clock.monotonic_ns() + round(delay * 1e9), backoff)

    def _add_task(self, task: Task, backoff: Backoff | None = None) -> None:
        """Make and start a capture while others run."""
        if capture := self._make(task, backoff):
            self._start(task, capture, backoff)

    def _start(self, task: Task, capture: Capture, backoff: Backoff | None = None) -> None:
        try:
            self._threads.add(capture)
        except SourceError as error:
            del self._captures[task.capture]
            self._retry_later(task, self._feeds[task.capture], error, backoff)

    def _housekeeping(self, now: int) -> None:
        """Housekeeping."""
        self._decoder_pool.tidy()
        self._sender.housekeeping()
        for number, capture in [*self._captures.items()]:
            if capture.ended:
                self._finish(number, capture.failure)
            elif capture.check_stalled(self._config.stall_after_s):
                self._replace(number, capture)
        for number, failed in [*self._failed.items()]:
            if now >= failed.due_ns:
                del self._failed[number]
                self._add_task(failed.task, failed.backoff)

    def _replace(self, number: int, capture: Capture) -> None:
        def make(source: SourceConfig, seq: int) -> Capture | None:
            return self._make(Task(number, source, seq))

        if by := self._threads.take_over(capture, make):
            self._start(Task(number, by.config, capture.seq), by)

    def _finish(self, number: int, failure: str | None) -> None:
        """Forget a source that has ended."""
        self._captures.pop(number, None)
        self._failed.pop(number, None)
        if tape := self._tapes.pop(number, None):
            tape.end()
        if feed := self._feeds.pop(number, None):
            feed.end(failure)

    def _handle(self, message: Any, fd: int | None) -> None:
        if isinstance(message, Returned):
            self._sender.on_returned(message)
        elif isinstance(message, AdmissionReply | QuotaChanged | Watch):
            if feed := self._feeds.get(message.capture):
                self._handle_for(feed, message)
        elif isinstance(message, Record | NoRecord):
            self._record(message, fd)
        elif isinstance(message, Add):
            self._add_task(pickle.loads(message.task))  # noqa: S301 - from the daemon, which started this
        elif isinstance(message, Remove):
            self._remove(message.capture)
        elif isinstance(message, Abandon):
            if capture := self._captures.get(message.capture):
                capture.abandon()
        elif isinstance(message, Retry):
            if capture := self._captures.get(message.capture):
                capture.retry()
        elif isinstance(message, StopAll):
            self._stopping = True
            for number in [*self._failed]:
                self._remove(number)
            self._threads.stop()

    def _handle_for(self, feed: FrameForwarder, message: AdmissionReply | QuotaChanged | Watch) -> None:
        if isinstance(message, AdmissionReply):
            feed.on_admission_reply(message)
        elif isinstance(message, QuotaChanged):
            feed.on_quota_changed(message)
        else:
            feed.watch(on=message.on)

    def _record(self, message: Record | NoRecord, fd: int | None) -> None:
        if isinstance(message, NoRecord):
            if tape := self._tapes.get(message.capture):
                tape.end()
        elif message.capture in self._feeds:
            self._tape_of(message.capture).take(message, fd)
        elif fd is not None:  # the source has ended
            os.close(fd)

    def _remove(self, number: int) -> None:
        if capture := self._captures.get(number):
            capture.stop("removed")
            capture.wake()
        elif number in self._failed:
            self._feeds[number].announce("", None, "ended", "stopped", None, None)
            self._finish(number, None)
