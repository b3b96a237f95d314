"""The process of a store.

It ends when the daemon tells it to, or is gone. It ignores signals to the process group: the daemon handles them.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from daemon.capture.processes.channel import Channel, NoDescriptorError
from daemon.clock import SystemClock
from daemon.config.root import LogConfig
from daemon.errors import LookoutError
from daemon.log import logging
from daemon.recording.clips import Clip, ClipState
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
    ToRecorder,
    Tracks,
)
from daemon.recording.recorder import Recorder, StorePlace
from daemon.recording.source_recorder import SourceRecorder
from daemon.system.tuning import configure_gc_and_switch_interval

log = structlog.get_logger(__name__)
TURN_NS = 250_000_000  # sources have turns of their own, of which each takes some
_BEAT_NS = 1_000_000_000
_AT_ONCE = 100  # accounts in a message


@dataclass(frozen=True)
class RecorderOrder:
    """Configuration of the process.

    Attributes:
        instance: id of the daemon's run.
    """

    place: StorePlace
    instance: str
    log: LogConfig


def main(order: RecorderOrder, end: int) -> int:
    """
    Args:
        end: of the socket to the daemon.
    """
    channel = Channel(socket.socket(fileno=end), ToRecorder)
    with logging(order.log):
        try:
            _RecorderProcess(order, channel).run()
        except Exception as error:
            log.exception("recording failed")
            with suppress(OSError):
                channel.send([Failed(f"{type(error).__name__}: {error}")])
            os._exit(1)
    sys.stderr.flush()
    os._exit(0)


class _RecorderProcess:
    def __init__(self, order: RecorderOrder, channel: Channel) -> None:
        self._channel, self._clock = channel, SystemClock()
        self._recorder = Recorder(order.place, order.instance, self._clock, self._tell)
        self._is_stopping = False
        self._claims = 0

    def run(self) -> None:
        configure_gc_and_switch_interval(captures=False)
        poller = select.poll()
        poller.register(self._channel.socket, select.POLLIN)
        turn_at = beat_at = 0
        while not self._is_stopping:
            now = self._clock.monotonic_ns()
            if poller.poll(max(0, turn_at - now) / 1e6):
                if not self._receive():
                    break
                continue
            self._recorder.turn()
            now = self._clock.monotonic_ns()
            turn_at = now + TURN_NS
            if now >= beat_at:
                beat_at = now + _BEAT_NS
                self._beat()
        self._recorder.turn()
        self._recorder.finish()

    def _receive(self) -> bool:
        """One packet of messages; False if the daemon is gone."""
        try:
            received = self._channel.receive()
        except NoDescriptorError:
            log.error("a source is not recorded: no descriptor is left")
            self._channel.receive_without_descriptor()
            return True
        if received is None:
            return False
        messages, fd = received
        try:
            for message in messages:
                self._handle(message, fd)
        finally:
            if fd is not None:
                os.close(fd)
        return True

    def _handle(self, message: Any, fd: int | None) -> None:
        recorder = self._recorder
        if isinstance(message, Record) and fd is not None:
            try:
                recorder.record(message.source, message.settings, fd)
            except (LookoutError, OSError) as error:
                log.error("a source cannot be recorded", source=message.source, reason=str(error))
        elif isinstance(message, Tracks) and fd is not None:
            try:
                recorder.use_tracks(fd)
            except (LookoutError, OSError) as error:
                log.error("boxes are not recorded", reason=str(error))
        elif isinstance(message, Configure):
            recorder.configure(message.source, message.settings)
        elif isinstance(message, Forget):
            recorder.forget(message.source, message.cause, message.detail, message.at)
            self._send(Forgotten(message.number))
        elif isinstance(message, Noted):
            recorder.note(message.source, message.at, message.cause, message.detail)
        elif isinstance(message, Claimed):
            self._claims += 1
            try:
                recorder.claim(message.source, message.claim)
            except LookoutError as error:
                log.error("what an event wants is not known", source=message.source, reason=str(error))
        elif isinstance(message, Others):
            recorder.explain(message.absence)
        elif isinstance(message, Stop):
            self._is_stopping = True

    def _tell(self, source: SourceRecorder, clip: Clip, is_over: bool) -> None:
        state: ClipState = "recording"
        if is_over:
            state = "ready" if clip.covered else "failed"
        begin, end = source.times_of(clip)
        self._send(ClipTold(source.source, clip.id, clip.events, begin, end, clip.covered, state))

    def _beat(self) -> None:
        recorder = self._recorder
        trouble = recorder.trouble
        cause, detail = (trouble.cause, str(trouble)) if trouble else (None, None)
        rows = recorder.accounts
        for first in range(0, len(rows), _AT_ONCE):
            self._send(Accounts(rows[first : first + _AT_ONCE]))
        self._send(Beat(cause, detail, recorder.uuid, *recorder.sizes, self._claims))

    def _send(self, message: FromRecorder) -> None:
        with suppress(OSError):  # the daemon is gone, which the next `receive` says
            self._channel.send([message])
