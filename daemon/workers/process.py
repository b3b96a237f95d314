"""A capture process: `python -m daemon.workers.process FD`, with what it is to do on its standard input.

It ends when its sources have, when it is told to, or when the daemon is gone. Signals that a terminal or a service
manager sends to all are the daemon's to act on.
"""

from __future__ import annotations

import os
import pickle
import select
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

import structlog

from daemon.capture import Capture
from daemon.capture_threads import Crew
from daemon.clock import SystemClock
from daemon.config import LogConfig, ReconnectConfig, SourceConfig
from daemon.log import logging
from daemon.signals import leave_to_the_daemon
from daemon.sources.decoding import Hardware, Offer
from daemon.sources.port import Source
from daemon.tuning import tune_the_interpreter
from daemon.workers.channel import Add, Answer, Channel, Ended, Failed, Remove, Returned, Share, Stop, ToCapture
from daemon.workers.outlet import Outlet, RemoteAdmission

log = structlog.get_logger(__name__)
_TICK_S = 0.25


@dataclass(frozen=True)
class Begin:
    """What a capture process is to do.

    Attributes:
        sources: and the number of the first frame of each.
        part: its share of the GPU's decoder and memory.
        measured: frames a second that the detector does, None where everybody is admitted.
        depth, places: see `Outlet`.
        niceness: added to the daemon's own, so that others have the CPU first.
    """

    sources: Sequence[tuple[SourceConfig, int]]
    make_source: Callable[[SourceConfig, Hardware], Source]
    offer: Offer
    part: float
    live: bool
    depth: int
    places: int
    reconnect: ReconnectConfig
    measured: float | None
    stall_after_s: float
    log: LogConfig
    niceness: int = 0


def main() -> int:
    leave_to_the_daemon()
    channel = Channel(socket.socket(fileno=int(sys.argv[1])), ToCapture)
    begin: Begin = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the daemon, which started this
    os.nice(begin.niceness)
    with logging(begin.log):
        try:
            hardware = begin.offer.open(begin.part)
        except Exception as error:  # noqa: BLE001 - whatever it is, the daemon is to say it
            channel.send([Failed(f"{type(error).__name__}: {error}")])
            return 1
        _Capturing(begin, hardware, channel).run()
    sys.stderr.flush()
    os._exit(0)  # threads may still be in libraries that do not return


class _Capturing:
    """Everything between the beginning and the end."""

    def __init__(self, begin: Begin, hardware: Hardware, channel: Channel) -> None:
        ids = [source.id for source, _ in begin.sources]
        self._begin, self._channel, self._hardware = begin, channel, hardware
        self._outlet = Outlet(channel, ids, hardware, live=begin.live, depth=begin.depth, places=begin.places)
        self._admission = RemoteAdmission(self._outlet, begin.measured)
        self._clock = SystemClock()
        captures = [self._make(source, seq) for source, seq in begin.sources]
        self._going = {capture.id: capture for capture in captures}
        self._crew = Crew(captures, hardware.threads, self._outlet, self._clock, self._give_up, hardware.use)
        self._sender = threading.Thread(target=self._send, name="sender", daemon=True)

    def run(self) -> None:
        tune_the_interpreter()
        self._sender.start()
        self._crew.start()
        poller = select.poll()
        poller.register(self._channel.socket, select.POLLIN)
        due = 0.0
        while self._going:
            if poller.poll(_TICK_S * 1000):
                received = self._channel.receive()
                if received is None:
                    return
                for message in received[0]:
                    self._obey(message)
            if monotonic() >= due:
                due = monotonic() + _TICK_S
                self._look_around()
        self._outlet.end()
        self._sender.join()

    def _send(self) -> None:
        """A process that cannot tell of its frames is of no use."""
        try:
            self._outlet.run()
        except Exception as error:
            log.exception("frames cannot be handed over")
            self._give_up(f"{type(error).__name__}: {error}")

    def _give_up(self, reason: str) -> None:
        """The daemon starts another process for the same sources."""
        with suppress(OSError):
            self._channel.send([Failed(reason)])
        os._exit(1)

    def _make(self, source: SourceConfig, seq: int) -> Capture:
        begin, outlet = self._begin, self._outlet
        return Capture(
            source,
            begin.make_source(source, self._hardware),
            outlet,
            outlet,
            outlet.announce,
            self._clock,
            begin.reconnect,
            self._admission,
            seq,
        )

    def _add(self, source: SourceConfig, seq: int) -> None:
        """While others go on."""
        self._outlet.add(source.id)
        capture = self._going[source.id] = self._make(source, seq)
        self._crew.add(capture)

    def _look_around(self) -> None:
        """Now and then."""
        self._outlet.look_around()
        for capture in [capture for capture in self._going.values() if self._has_ended(capture)]:
            del self._going[capture.id]
            self._outlet.tell(Ended(capture.id, capture.failure))
        for name, capture in self._going.items():
            if capture.check_stalled(self._begin.stall_after_s) and (by := self._crew.renew(capture, self._make)):
                self._going[name] = by

    def _obey(self, message: Any) -> None:
        if isinstance(message, Returned):
            self._outlet.returned(message)
        elif isinstance(message, Answer):
            self._admission.answer(message.source, message.refusal)
        elif isinstance(message, Share):
            self._admission.share(message.source, message.allowance)
        elif isinstance(message, Add):
            self._add(*pickle.loads(message.task))  # noqa: S301 - from the daemon, which started this
        elif isinstance(message, Remove):
            if capture := self._going.get(message.source):
                self._crew.end(capture)
        elif isinstance(message, Stop):
            self._crew.stop()

    def _has_ended(self, capture: Capture) -> bool:
        return capture.state == "ended" or not self._crew.threads


if __name__ == "__main__":
    sys.exit(main())
