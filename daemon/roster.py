"""The sources there are: begun together, and then one by one as they are added, changed and removed.

Each has an account, a place on the board and a capture; the capture is served by a thread of this process, or by a
capture process. What happens to one is not felt by another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from daemon.admission import Admission
from daemon.board import FrameBoard
from daemon.capture import Capture
from daemon.capture_port import Announce
from daemon.capture_threads import Crew
from daemon.clock import Clock
from daemon.config import Config, SourceConfig
from daemon.messages import State, VideoFormat
from daemon.metrics import Ledger
from daemon.plan import processes_of, remote, surfaces_of
from daemon.sources.decoding import Hardware, NoHardware, Offer
from daemon.sources.port import Source
from daemon.workers.fleet import Fleet
from daemon.workers.process import Begin
from daemon.workers.remote import Surroundings

log = structlog.get_logger(__name__)
MakeSource = Callable[[SourceConfig, Hardware], Source]
_PATIENCE_S = 7.0  # with a source that is to end, and may block for its read time limit
_POLL_S = 0.01


class AnyCapture(Protocol):
    """A capture here or in another process."""

    failure: str | None
    format: VideoFormat | None

    @property
    def id(self) -> str: ...
    @property
    def state(self) -> State: ...
    @property
    def ended(self) -> bool: ...
    def disown(self) -> None: ...


@dataclass(frozen=True)
class Into:
    """Where sources' frames, fates and states go."""

    board: FrameBoard
    ledger: Ledger
    announce: Announce
    forget: Callable[[str], None]
    admission: Admission
    on_failure: Callable[[str], None]


class Roster:
    """All sources; one thread adds and removes at a time, another watches.

    Args:
        config: its sources are the first.
        offer: what decodes on the GPU.

    Attributes:
        captures: of the sources there are, replaced as a whole.
        hardware: of this process.
    """

    def __init__(
        self, config: Config, offer: Offer | NoHardware, make_source: MakeSource, into: Into, clock: Clock
    ) -> None:
        self._config, self._offer, self._make_source = config, offer, make_source
        self._into, self._clock = into, clock
        self._processes = processes_of(config, offer)
        elsewhere = remote(config.active) if self._processes else []
        self.hardware = (NoHardware("capture processes have it") if elsewhere else offer).open()
        here = [self._capture(source, 0) for source in config.active if source not in elsewhere]
        self._crew = Crew(here, self.hardware.threads, into.board, clock, into.on_failure, self.hardware.use)
        self._fleet = self._make_fleet(elsewhere) if elsewhere else None
        self.captures: list[AnyCapture] = [*here, *(self._fleet.captures if self._fleet else ())]
        self._started = self._stopped = False
        self._lock = threading.Lock()  # `captures` is replaced

    @property
    def memory(self) -> int:
        """Bytes of the GPU that decoders are planned to take."""
        return self._fleet.memory if self._fleet else self.hardware.memory

    @property
    def pids(self) -> list[int]:
        """Of the capture processes."""
        return self._fleet.pids if self._fleet else []

    @property
    def in_processes(self) -> bool:
        return self._fleet is not None

    @property
    def finished(self) -> bool:
        """There were sources, and all have ended; whoever has none waits for some."""
        return bool(self.captures) and self._all_ended

    @property
    def threads(self) -> list[threading.Thread]:
        return [*self._crew.threads, *([self._fleet] if self._fleet else [])]

    @property
    def beat_ns(self) -> int | None:
        """Of the thread that serves capture processes, None if there is none."""
        return self._fleet.beat_ns if self._fleet and self._fleet.is_alive() else None

    def start(self) -> None:
        self._started = True
        self._crew.start()
        if self._fleet:
            self._fleet.start()

    def add(self, source: SourceConfig) -> None:
        """Begin with another source.

        Raises:
            LookoutError: it cannot be made.
        """
        seq = self._into.ledger.add(source.id)
        self._into.board.add(source.id)
        if self._processes and remote([source]):
            if self._fleet is None or not self._fleet.is_alive():
                self._fleet = self._make_fleet([source], seq)
                self._fleet.start()
                capture: AnyCapture = self._fleet.captures[0]
            else:
                capture = self._fleet.add(source, seq)
        else:
            own = self._capture(source, seq)
            self._crew.add(own)
            capture = own
        with self._lock:
            self.captures = [*self.captures, capture]

    def remove(self, sources: Sequence[str]) -> None:
        """End sources and forget them; returns when they have ended, or when the patience with them has."""
        with self._lock:
            leaving = [capture for capture in self.captures if capture.id in sources]
            self.captures = [capture for capture in self.captures if capture not in leaving]
        for capture in leaving:
            if isinstance(capture, Capture):
                self._crew.end(capture)
            elif self._fleet:
                self._fleet.remove(capture.id)
        until = self._clock.monotonic_ns() + round(_PATIENCE_S * 1e9)
        pause = threading.Event()
        while not all(map(self._has_ended, leaving)) and self._clock.monotonic_ns() < until and not self._stopped:
            self._clock.wait(pause, _POLL_S)
        for capture in leaving:
            if not self._has_ended(capture):
                log.warning("a source does not end: left behind", source=capture.id)
                capture.disown()
        for capture in leaving:
            self._into.board.remove(capture.id)
            self._into.ledger.remove(capture.id)
            self._into.forget(capture.id)

    def check_stalled(self, after_s: float) -> None:
        """Say which connected ones have given no frame for so long; those that block for much longer begin anew."""
        for capture in self.captures:  # other processes do it themselves
            if isinstance(capture, Capture) and capture.check_stalled(after_s):
                self._renew(capture)

    def stop(self) -> None:
        """Ask all to end."""
        self._stopped = True
        if self._started:
            self._crew.stop()
            if self._fleet:
                self._fleet.stop()

    def join(self, left: Callable[[], float]) -> None:
        """Wait for the threads, each for as long as is left; then end the processes."""
        for thread in self.threads:
            if thread.ident is not None:
                thread.join(left())
        if self._fleet:
            self._fleet.kill()

    def _renew(self, capture: Capture) -> None:
        with self._lock:
            if capture in self.captures and (by := self._crew.renew(capture, self._capture)):
                self.captures = [by if other is capture else other for other in self.captures]

    def _has_ended(self, capture: AnyCapture) -> bool:
        return capture.ended or (self._started and self._all_ended)

    @property
    def _all_ended(self) -> bool:
        return not (self._crew.threads or (self._fleet and self._fleet.is_alive()))

    def _capture(self, source: SourceConfig, seq: int) -> Capture:
        into = self._into
        return Capture(
            source,
            self._make_source(source, self.hardware),
            into.board,
            into.ledger,
            into.announce,
            self._clock,
            self._config.reconnect,
            into.admission,
            seq,
        )

    def _make_fleet(self, sources: Sequence[SourceConfig], seq: int = 0) -> Fleet:
        config, into = self._config, self._into
        begin = Begin(
            sources=[],
            make_source=self._make_source,
            offer=self._offer,
            part=1.0,
            live=config.board.mode == "live",
            depth=config.board.depth,
            places=surfaces_of(config),
            reconnect=config.reconnect,
            measured=into.admission.measured,
            stall_after_s=config.monitor.stall_after_s,
            log=config.log,
        )
        to = Surroundings(into.board, into.ledger, into.announce, into.admission)
        return Fleet(sources, self._processes, begin, to, into.on_failure, seq)
