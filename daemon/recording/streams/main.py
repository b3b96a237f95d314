"""The process of streams that are recorded alone.

It ends when the daemon tells it to, or is gone. It ignores signals to the process group: the daemon handles them.
"""

from __future__ import annotations

import os
import pickle
import select
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from daemon.capture.processes.channel import Channel, NoDescriptorError
from daemon.capture.processes.protocol import NoRecord, ProcessMessage, Record
from daemon.capture.processes.tape import SourceTape
from daemon.clock import SystemClock
from daemon.config.root import LogConfig
from daemon.config.sources import AvConfig
from daemon.log import logging
from daemon.recording.streams.protocol import Beat, Begin, End, Failed, Stop, StreamChanged, ToStreams
from daemon.recording.streams.stream import RecordedStream, StreamRules
from daemon.system.tuning import configure_gc_and_switch_interval

log = structlog.get_logger(__name__)
_TICK_NS = 250_000_000


@dataclass(frozen=True)
class StreamsOrder:
    """Configuration of the process."""

    rules: StreamRules
    log: LogConfig


def main(order: StreamsOrder, end: int) -> int:
    """
    Args:
        end: of the socket to the daemon.
    """
    channel = Channel(socket.socket(fileno=end), ToStreams)
    with logging(order.log):
        try:
            _StreamsProcess(order, channel).run()
        except Exception as error:
            log.exception("process of streams failed")
            with suppress(OSError):
                channel.send([Failed(f"{type(error).__name__}: {error}")])
            os._exit(1)
    sys.stderr.flush()
    os._exit(0)  # threads may be blocked in libraries


class _StreamsProcess:
    def __init__(self, order: StreamsOrder, channel: Channel) -> None:
        self._rules, self._channel, self._clock = order.rules, channel, SystemClock()
        self._streams: dict[int, RecordedStream] = {}
        self._unstarted: set[int] = set()  # the system had no thread
        self._is_stopping = False

    def run(self) -> None:
        configure_gc_and_switch_interval()
        poller, due_ns = select.poll(), 0
        poller.register(self._channel.socket, select.POLLIN)
        while not self._is_stopping:
            now = self._clock.monotonic_ns()
            if now >= due_ns:
                due_ns = now + _TICK_NS
                self._check()
            if poller.poll((due_ns - now) / 1e6):
                try:
                    received = self._channel.receive()
                except NoDescriptorError:
                    received = self._channel.receive_without_descriptor(), None
                if received is None:
                    return
                for message in received[0]:
                    self._handle(message, received[1])

    def _check(self) -> None:
        """Every moment: start and replace streams, and send a heartbeat."""
        self._channel.send([Beat()])
        for number, stream in [*self._streams.items()]:
            if number in self._unstarted:
                self._start(number, stream)
            elif stream.is_blocked():
                log.warning("stream is left behind: it is blocked in its library", source=stream.config.id)
                stream.end()
                self._begin(number, stream.config, stream.tape)

    def _handle(self, message: Any, fd: int | None) -> None:
        if isinstance(message, Begin):
            config: AvConfig = pickle.loads(message.config)  # noqa: S301 - from the daemon, which started this
            self._begin(message.stream, config, SourceTape())
        elif isinstance(message, Record):
            if stream := self._streams.get(message.capture):
                stream.tape.take(message, fd)
            elif fd is not None:
                os.close(fd)
        elif isinstance(message, NoRecord):
            if stream := self._streams.get(message.capture):
                stream.tape.end()
        elif isinstance(message, End):
            if stream := self._streams.pop(message.stream, None):
                stream.end()
                stream.tape.end()
            self._unstarted.discard(message.stream)
        elif isinstance(message, Stop):
            self._is_stopping = True

    def _begin(self, number: int, config: AvConfig, tape: SourceTape) -> None:
        stream = RecordedStream(number, config, tape, self._rules, self._tell, self._clock)
        self._streams[number] = stream
        self._start(number, stream)

    def _start(self, number: int, stream: RecordedStream) -> None:
        if stream.start():
            self._unstarted.discard(number)
        else:
            self._unstarted.add(number)

    def _tell(self, message: StreamChanged) -> None:
        self._send(message)

    def _send(self, message: ProcessMessage) -> None:
        with suppress(OSError):  # the daemon is gone, which `run` sees
            self._channel.send([message])
