"""The composition root: builds everything, starts it and stops it in order. The only file that knows every class."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

import numpy as np
import structlog

from daemon import systemd
from daemon.admission import UNKNOWN_FPS, Admission
from daemon.board import FrameBoard
from daemon.capacity import measure_detector
from daemon.capture import Capture
from daemon.capture_threads import CaptureThread, share_out
from daemon.clock import Clock, SystemClock, process_age_s
from daemon.config import Config, SourceConfig
from daemon.lane import LaneThread, keep_of
from daemon.messages import VideoFormat
from daemon.metrics import Ledger
from daemon.monitor import Monitor, RowSink
from daemon.mps import Mps
from daemon.outbox import Outbox
from daemon.plan import PROCESS_BYTES, hardware_of, options_of, processes_of, processes_wished, remote, surfaces_of
from daemon.probes import open_gpu_probe
from daemon.publisher import Publisher
from daemon.sources.decoding import NVDEC, Hardware, NoHardware, Offer
from daemon.sources.factory import make_source
from daemon.sources.port import Source
from daemon.tuning import allow_many_files, tune_the_interpreter
from daemon.workers.fleet import Fleet
from daemon.workers.process import Begin
from daemon.workers.remote import Surroundings
from detectors.factory import Backend, open_detector, passed_over
from detectors.port import Detector, DetectorError, HostImage, ModelInfo, Options

log = structlog.get_logger(__name__)

STOP_S = 5.0
PART_FAILED = 3  # exit code when a lane, the publisher or the monitor failed: the supervisor starts a fresh process
_BEAT_S = 30.0  # a lane or the publisher that has not moved for so long is stuck
_POLL_S = 0.05

OpenDetector = Callable[[Backend, Options], Detector]
MakeSource = Callable[[SourceConfig, Hardware], Source]
FindHardware = Callable[[Config, ModelInfo], Offer | NoHardware]


class App:
    """A running Lookout.

    Args:
        open_detector: how to open the model; the factory's, or a fake's.
        make_source: how to make a source; the factory's, or a benchmark's. Capture processes get it pickled.
        find_hardware: what decodes on the GPU; the plan's, or a stand-in.
        sinks: takers of every frame's row, such as a benchmark.

    Raises:
        ConfigError, DetectorError: from the constructor, with nothing left open.
    """

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock | None = None,
        open_detector: OpenDetector = open_detector,
        make_source: MakeSource = make_source,
        find_hardware: FindHardware = hardware_of,
        sinks: Sequence[RowSink] = (),
    ) -> None:
        self._config, self._clock = config, clock or SystemClock()
        self._stopping = threading.Event()
        self._failure: str | None = None
        ids = [source.id for source in config.active]
        lossless = config.board.mode == "lossless"
        instance = secrets.token_hex(4)
        self.ledger = Ledger(ids)
        self._mps: Mps | None = None
        self._outbox = Outbox(config.publisher.outbox, self.ledger, lossless=lossless)
        with ExitStack() as undo:
            self._publisher = Publisher(config.publisher, self._outbox, self.ledger, self._clock, instance, self._fail)
            undo.callback(self._publisher.stop, 0.0)
            if config.gpu.mps == "auto" and processes_wished(config) > 1:
                self._share_gpu(undo)
            self._detector = open_detector(config.model.backend, options_of(config))
            undo.callback(self._detector.close)
            self._board = FrameBoard(
                ids,
                self.ledger,
                self._clock,
                depth=config.board.depth if lossless else None,
                max_age_ns=round(config.board.max_age_ms * 1e6),
                lanes=self._detector.info.lanes,
                batch=config.board.max_batch,
            )
            offer = find_hardware(config, self._detector.info)
            self._admission = self._make_admission(offer)
            self._make_sources(offer, make_source, undo)
            self._lanes = self._make_lanes()
            self._monitor = Monitor(
                config.monitor,
                self.ledger,
                self._captures,
                self._publisher,
                self._outbox,
                lambda: self.pids,
                open_gpu_probe(),
                self._clock,
                instance,
                self._is_alive,
                self._fail,
                sinks,
            )
            undo.pop_all()

    @property
    def endpoint(self) -> str:
        """Where subscribers connect."""
        return self._publisher.endpoint

    @property
    def model(self) -> ModelInfo:
        return self._detector.info

    @property
    def formats(self) -> dict[str, VideoFormat]:
        """Of the sources that are connected."""
        return {capture.id: capture.format for capture in self._captures if capture.format}

    @property
    def memory_plan(self) -> tuple[tuple[str, int], ...]:
        """Bytes of the GPU's memory by what they are for, with the sources connected now."""
        if self._fleet is None:
            return (*self.model.memory, ("decoding", self._hardware.memory))
        processes = len(self._fleet.pids) * PROCESS_BYTES if self.model.gpu is not None else 0
        return (*self.model.memory, ("decoding", self._fleet.memory), ("capture processes", processes))

    @property
    def pids(self) -> list[int]:
        """Of this process, and of those that capture."""
        return [os.getpid(), *(self._fleet.pids if self._fleet else ())]

    @property
    def failures(self) -> dict[str, str]:
        """Recordings that could not be played to their end, and why."""
        return {capture.id: capture.failure for capture in self._captures if capture.failure}

    def run(self) -> int:
        """Start, work until told to stop or until every recording has ended, and stop; the process's exit code."""
        self.start()
        self.wait()
        return self.stop()

    def start(self) -> None:
        """Lanes first, then the publisher; sources last, so that no frame waits for a model that still loads."""
        allow_many_files()  # capture processes, started from here, have it too
        info = self._detector.info
        log.info("model", **{key: getattr(info, key) for key in ("name", "digest", "head", "backend", "precision")})
        if self._config.model.backend == "auto":
            for row in passed_over(info.backend):
                log.info("backend passed over", backend=row.backend, reason=row.reason)
        for note in info.notes:
            log.warning(note)
        if info.startup:
            log.info("model opened", **{name.replace(" ", "_"): seconds for name, seconds in info.startup})
        for lane in self._lanes:
            lane.start()
        for lane in self._lanes:
            while not lane.ready.wait(_POLL_S) and not self._stopping.is_set():
                """Warming up."""
        self._publisher.serve(info)
        self._monitor.start()
        tune_the_interpreter(captures=self._fleet is None)
        self._await_audience()
        for thread in self._capture_threads:
            thread.start()
        log.info("ready", endpoint=self.endpoint, sources=len(self._captures), lanes=len(self._lanes), **self._age())
        systemd.notify("READY=1")

    def wait(self) -> None:
        """Until `request_stop`, a failure, or the end of the last recording."""
        seen = False
        while not self._stopping.wait(_POLL_S):
            if not seen and any(count.published for count in self.ledger.counts().values()):
                seen = True
                log.info("first detections published", **self._age())
            if not any(thread.is_alive() for thread in self._capture_threads):
                log.info("every recording has ended")
                return

    def request_stop(self) -> None:
        """Ask `wait` to return; safe in a signal handler."""
        self._stopping.set()

    def stop(self) -> int:
        """Sources, board, lanes, publisher, monitor: within STOP_S in all. Returns the exit code."""
        systemd.notify("STOPPING=1")
        deadline = self._clock.monotonic_ns() + round(STOP_S * 1e9)

        def left(keep_s: float) -> float:
            return max(0.05, (deadline - self._clock.monotonic_ns()) / 1e9 - keep_s)

        for thread in self._capture_threads:
            thread.stop()
        for thread in self._capture_threads:
            if thread.ident is not None:
                thread.join(left(2.5))
        if self._fleet:
            self._fleet.kill()
        self._board.close()
        for lane in self._lanes:
            if lane.ident is not None:
                lane.join(left(1.8))
        self._board.abandon()
        self._outbox.close()
        self._outbox.flush(left(1.3))  # so that the last report counts every frame
        self._monitor.stop(left(1.0))
        self._publisher.stop(left(0.2))
        for part in (self._hardware, self._detector):
            with suppress(DetectorError):  # as in lanes: the reason is told already
                part.close()
        if self._mps:
            self._mps.close()
        late = [thread.name for thread in threading.enumerate() if thread in self._threads() and thread.is_alive()]
        if late:
            log.warning("left behind: still blocked after the time to stop", threads=late)
        log.info("stopped", seconds=round(STOP_S - (deadline - self._clock.monotonic_ns()) / 1e9, 2))
        if self._failure:
            log.error("ended by a failure", reason=self._failure)
            return PART_FAILED
        return 0

    @staticmethod
    def _age() -> dict[str, float]:
        """Of the process, for the log."""
        return {"seconds_since_start": round(process_age_s(), 2)}

    def _share_gpu(self, undo: ExitStack) -> None:
        """Before anybody uses it, so that capture processes and lanes run on it side by side."""
        self._mps = Mps()
        undo.callback(self._mps.close)
        log.info(
            "capture processes and lanes share the GPU",
            by="MPS" if self._mps.reason is None else "turns",
            reason=self._mps.reason,
        )

    def _threads(self) -> list[threading.Thread]:
        return [*self._capture_threads, *self._lanes, self._publisher, self._monitor]

    def _make_sources(self, offer: Offer | NoHardware, make_source: MakeSource, undo: ExitStack) -> None:
        """Those that are captured here, and the processes for the others."""
        active, processes = self._config.active, processes_of(self._config, offer)
        elsewhere = remote(active) if processes else []
        self._hardware = (NoHardware("capture processes have it") if elsewhere else offer).open()
        undo.callback(self._hardware.close)
        captures = self._make_captures([source for source in active if source not in elsewhere], make_source)
        threads = share_out(captures, self._hardware.threads, self._board, self._clock)
        self._fleet = self._make_fleet(elsewhere, processes, offer, make_source) if elsewhere else None
        self._captures = [*captures, *(self._fleet.captures if self._fleet else ())]
        self._capture_threads: list[CaptureThread | Fleet] = [*threads, *([self._fleet] if self._fleet else [])]

    def _make_captures(self, sources: Sequence[SourceConfig], make_source: MakeSource) -> list[Capture]:
        return [
            Capture(
                source,
                make_source(source, self._hardware),
                self._board,
                self.ledger,
                self._publisher.announce,
                self._clock,
                self._config.reconnect,
                self._admission,
            )
            for source in sources
        ]

    def _make_fleet(
        self, sources: Sequence[SourceConfig], processes: int, offer: Offer | NoHardware, make_source: MakeSource
    ) -> Fleet:
        config = self._config
        begin = Begin(
            sources=[],
            make_source=make_source,
            offer=offer,
            part=1.0,
            live=config.board.mode == "live",
            depth=config.board.depth,
            places=surfaces_of(config),
            reconnect=config.reconnect,
            measured=self._admission.measured,
            stall_after_s=config.monitor.stall_after_s,
            log=config.log,
        )
        to = Surroundings(self._board, self.ledger, self._publisher.announce, self._admission)
        return Fleet(sources, processes, begin, to, self._fail)

    def _make_admission(self, offer: Offer | NoHardware) -> Admission:
        """With what the detector can do, measured before its lanes are made, on pictures where sources have them."""
        mode, (width, height) = self._config.admission, self._config.gpu.frame_size
        if mode == "off":
            return Admission()
        grey = HostImage(np.full((height, width, 3), 114, np.uint8))
        rate = measure_detector(
            self._detector, [grey if isinstance(offer, NoHardware) else self._detector.sample(width, height)]
        )
        log.info("admission", mode=mode, detector_fps=round(rate, 1))

        def decoder(format: VideoFormat) -> float:
            if format.decoder != NVDEC:
                return 0.0
            size = format.width, format.height
            return offer.needs(format.codec, *size, format.fps or UNKNOWN_FPS, low_latency=True)[0]

        return Admission(mode, rate, decoder)

    def _make_lanes(self) -> list[LaneThread]:
        model = self._config.model
        least = options_of(self._config).wanted.confidence
        keep = {
            source.id: keep_of(source, self._detector.info.labels, model.confidence, least)
            for source in self._config.active
        }
        return [
            LaneThread(number, self._detector, self._board, self._outbox, self.ledger, keep, self._fail, self._clock)
            for number in range(self._detector.info.lanes)
        ]

    def _await_audience(self) -> None:
        patience = self._config.publisher.wait_for_subscriber_s
        until = self._clock.monotonic_ns() + round(patience * 1e9)
        while not self._publisher.audience.wait(_POLL_S if patience else 0) and not self._stopping.is_set():
            if self._clock.monotonic_ns() >= until:
                if patience:
                    log.warning("nobody subscribed in time: starting without", seconds=patience)
                return

    def _is_alive(self) -> bool:
        now = self._clock.monotonic_ns()
        beats = [self._publisher.beat_ns, *(lane.beat_ns for lane in self._lanes)]
        if self._fleet and self._fleet.is_alive():
            beats.append(self._fleet.beat_ns)
        return all(now - beat < _BEAT_S * 1e9 for beat in beats)

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self._stopping.set()
