"""The composition root: builds everything, starts it and stops it in order. The only file that knows every class."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import numpy as np
import structlog

from daemon import systemd
from daemon.admission import UNKNOWN_FPS, Admission
from daemon.affinity import Affinity
from daemon.board import FrameBoard
from daemon.capacity import measure_detector
from daemon.changes import Changes, OpenDetector
from daemon.clock import Clock, SystemClock, process_age_s
from daemon.config import Config, HttpConfig
from daemon.decoder_rate import DecoderRate
from daemon.errors import ConfigError
from daemon.lanes import Lanes
from daemon.messages import Metrics, PublisherMetrics, VideoFormat
from daemon.metrics import Ledger
from daemon.monitor import Monitor, RowSink
from daemon.mps import Mps
from daemon.outbox import Outbox
from daemon.plan import PROCESS_BYTES, hardware_of, options_of, processes_wished
from daemon.probes import open_gpu_probe
from daemon.publisher import Publisher
from daemon.reload import Change, least_confidence
from daemon.roster import Into, MakeSource, Roster
from daemon.snapshots import Snapshots
from daemon.sources.decoding import NVDEC, NoHardware, Offer
from daemon.sources.factory import make_source
from daemon.tuning import allow_many_files, tune_the_interpreter
from daemon.watchdog import Beat, Watchdog
from detectors.factory import open_detector, passed_over
from detectors.port import Detector, DetectorError, HostImage, ModelInfo

if TYPE_CHECKING:
    from daemon.http.server import HttpServer

log = structlog.get_logger(__name__)

STOP_S = 5.0
PART_STUCK = 4  # exit code when one of them did not come back from a library
PART_FAILED = 3  # exit code when a lane, the publisher or the monitor failed: the supervisor starts a fresh process
_POLL_S = 0.05

FindHardware = Callable[[Config, ModelInfo], Offer | NoHardware]


class App:
    """A running Lookout.

    Args:
        open_detector: how to open the model; the factory's, or a fake's.
        make_source: how to make a source; the factory's, or a benchmark's. Capture processes get it pickled.
        find_hardware: what decodes on the GPU; the plan's, or a stand-in.
        sinks: takers of every frame's row, such as a benchmark.
        read: the configuration file as it is now, for a reload.

    Attributes:
        ledger: what happened to every frame.
        roster: the sources there are.
        snapshots: pictures, for who asks.
        is_ready: started, and not told to stop.

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
        read: Callable[[], Config] | None = None,
    ) -> None:
        self._config, self._clock = config, clock or SystemClock()
        self._stopping = threading.Event()
        self._failure: str | None = None
        self._watchdog = Watchdog(self._beats, config.monitor.stuck_after_s, self._clock)
        self._code = PART_FAILED
        self.is_ready = False
        instance = secrets.token_hex(4)
        self.ledger = Ledger([source.id for source in config.active])
        self._mps: Mps | None = None
        self._outbox = Outbox(config.publisher.outbox, self.ledger, lossless=config.board.mode == "lossless")
        self.snapshots = Snapshots()
        self._read = read or (lambda: self._config)
        self._http: HttpServer | None = None
        with ExitStack() as undo:
            if config.http.enabled:
                self._http = _http_server(config.http)
                undo.callback(self._http.stop, 0.0)
            self._publisher = Publisher(config.publisher, self._outbox, self.ledger, self._clock, instance, self._fail)
            undo.callback(self._publisher.stop, 0.0)
            if config.gpu.mps == "auto" and processes_wished(config) > 1:
                self._share_gpu(undo)
            detector = open_detector(config.model.backend, options_of(config))
            undo.callback(detector.close)
            self._board = self._make_board(detector.info)
            offer = find_hardware(config, detector.info)
            admission = self._make_admission(offer, detector)
            into = Into(
                self._board,
                self.ledger,
                self._publisher.announce,
                self._publisher.forget,
                admission,
                self._fail,
            )
            self.roster = Roster(config, offer, make_source, into, self._clock)
            undo.callback(self.roster.hardware.close)
            self._lanes = self._make_lanes(detector)
            self._changes = Changes(config, self.roster, self._lanes, open_detector, make_source, self._clock)
            self._monitor = self._make_monitor(instance, admission, sinks)
            if self._http:
                self._offer_http(self._http)
            undo.pop_all()

    @property
    def endpoint(self) -> str:
        """Where subscribers connect."""
        return self._publisher.endpoint

    @property
    def model(self) -> ModelInfo:
        return self._lanes.detector.info

    @property
    def formats(self) -> dict[str, VideoFormat]:
        """Of the sources that are connected."""
        return {capture.id: capture.format for capture in self.roster.captures if capture.format}

    @property
    def last_metrics(self) -> Metrics | None:
        """The last report, None before the first."""
        return self._monitor.last

    @property
    def publisher_metrics(self) -> PublisherMetrics:
        return self._publisher.metrics()

    @property
    def http_port(self) -> int | None:
        """Where the HTTP interface listens; None if it does not."""
        return self._http.port if self._http else None

    @property
    def memory_plan(self) -> tuple[tuple[str, int], ...]:
        """Bytes of the GPU's memory by what they are for, with the sources connected now."""
        decoding = ("decoding", self.roster.memory)
        if not self.roster.in_processes:
            return (*self.model.memory, decoding)
        processes = len(self.roster.pids) * PROCESS_BYTES if self.model.gpu is not None else 0
        return (*self.model.memory, decoding, ("capture processes", processes))

    @property
    def pids(self) -> list[int]:
        """Of this process, and of those that capture."""
        return [os.getpid(), *self.roster.pids]

    @property
    def failures(self) -> dict[str, str]:
        """Recordings that could not be played to their end, and why."""
        return {capture.id: capture.failure for capture in self.roster.captures if capture.failure}

    def run(self) -> int:
        """Start, work until told to stop or until every recording has ended, and stop; the process's exit code."""
        self.start()
        self.wait()
        return self.stop()

    def start(self) -> None:
        """Lanes first, then the publisher; sources last, so that no frame waits for a model that still loads."""
        allow_many_files()  # capture processes, started from here, have it too
        info = self.model
        log.info("model", **{key: getattr(info, key) for key in ("name", "digest", "head", "backend", "precision")})
        if self._config.model.backend == "auto":
            for row in passed_over(info.backend):
                log.info("backend passed over", backend=row.backend, reason=row.reason)
        for note in info.notes:
            log.warning(note)
        if info.startup:
            log.info("model opened", **{name.replace(" ", "_"): seconds for name, seconds in info.startup})
        self._lanes.start(self._stopping)
        self._publisher.start()
        self._monitor.start()
        tune_the_interpreter(captures=not self.roster.in_processes)
        self._await_audience()
        self.roster.start()
        counts = {"sources": len(self.roster.captures), "lanes": len(self._lanes.threads)}
        log.info("ready", endpoint=self.endpoint, **counts, **self._age())
        self.is_ready = True
        systemd.notify("READY=1")

    def wait(self) -> None:
        """Until `request_stop`, a failure, or the end of the last recording."""
        seen = False
        while not self._stopping.wait(_POLL_S):
            if not seen and any(count.published for count in self.ledger.counts().values()):
                seen = True
                log.info("first detections published", **self._age())
            if self.roster.finished:
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

        self.is_ready = False
        self._changes.stop()
        self.roster.stop()
        self.roster.join(lambda: left(2.5))
        self._board.close()
        for lane in self._lanes.threads:
            if lane.ident is not None:
                lane.join(left(1.8))
        self._board.abandon()
        self._outbox.close()
        self._outbox.flush(left(1.3))  # so that the last report counts every frame
        if self._http:
            self._http.stop(left(1.2))
        self._monitor.stop(left(1.0))
        self._publisher.stop(left(0.2))
        for part in (self.roster.hardware, self._lanes.detector):
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
            return self._code
        return 0

    # --- how it is made --------------------------------------------------------------------------------------------

    def _share_gpu(self, undo: ExitStack) -> None:
        """Before anybody uses it, so that capture processes and lanes run on it side by side."""
        self._mps = Mps()
        undo.callback(self._mps.close)
        log.info(
            "capture processes and lanes share the GPU",
            by="MPS" if self._mps.reason is None else "turns",
            reason=self._mps.reason,
        )

    def _make_board(self, info: ModelInfo) -> FrameBoard:
        board = self._config.board
        return FrameBoard(
            [source.id for source in self._config.active],
            self.ledger,
            self._clock,
            depth=board.depth if board.mode == "lossless" else None,
            max_age_ns=round(board.max_age_ms * 1e6),
            lanes=info.lanes,
            batch=board.max_batch,
            gather=info.gpu is not None,
        )

    def _make_lanes(self, detector: Detector) -> Lanes:
        config = self._config
        return Lanes(
            detector,
            config.active,
            config.model.confidence,
            least_confidence(config),
            self._board,
            self._outbox,
            self.ledger,
            self._fail,
            self._clock,
            self.snapshots.look,
        )

    def _make_monitor(self, instance: str, admission: Admission, sinks: Sequence[RowSink]) -> Monitor:
        affine = self.model.gpu is not None and self._config.gpu.avoid_interrupts
        return Monitor(
            self._config.monitor,
            self.ledger,
            self.roster,
            self._publisher,
            self._outbox,
            lambda: self.pids,
            open_gpu_probe(),
            self._clock,
            instance,
            self._is_alive,
            self._fail,
            sinks,
            admission.learn,
            Affinity(lambda: self.pids).look if affine else lambda _: None,
        )

    def _make_admission(self, offer: Offer | NoHardware, detector: Detector) -> Admission:
        """With what the detector can do, measured before its lanes are made, on pictures where sources have them."""
        mode, (width, height) = self._config.admission, self._config.gpu.frame_size
        if mode == "off":
            return Admission()
        grey = HostImage(np.full((height, width, 3), 114, np.uint8))
        rate = measure_detector(detector, [grey if isinstance(offer, NoHardware) else detector.sample(width, height)])
        log.info("admission", mode=mode, detector_fps=round(rate, 1))

        def decoder(format: VideoFormat) -> float:
            if format.decoder != NVDEC:
                return 0.0
            size = format.width, format.height
            return offer.needs(format.codec, *size, format.fps or UNKNOWN_FPS, low_latency=True)[0]

        return Admission(mode, rate, decoder, DecoderRate(self._config.gpu.device))

    def _offer_http(self, server: HttpServer) -> None:
        from daemon.http.exposition import Exposition
        from daemon.http.routes import Routes
        from daemon.kept import Kept

        http = self._config.http
        exposition = Exposition(self)
        self._monitor.add_sink(exposition.histograms.take)
        kept = Kept(http.sources_file) if http.sources_file else None
        server.serve(Routes(self, http, exposition, kept, self._read).starlette())

    # --- while it runs ---------------------------------------------------------------------------------------------

    @property
    def config(self) -> Config:
        """As it is now."""
        return self._changes.config

    def reload(self, read: Callable[[Config], Config]) -> Future[Change]:
        """Go over to another configuration; see `daemon.changes.Changes.ask`."""
        return self._changes.ask(read)

    @staticmethod
    def _age() -> dict[str, float]:
        """Of the process, for the log."""
        return {"seconds_since_start": round(process_age_s(), 2)}

    def _threads(self) -> list[threading.Thread]:
        return [*self.roster.threads, *self._lanes.threads, self._publisher, self._monitor]

    def _await_audience(self) -> None:
        patience = self._config.publisher.wait_for_subscriber_s
        until = self._clock.monotonic_ns() + round(patience * 1e9)
        while not self._publisher.audience.wait(_POLL_S if patience else 0) and not self._stopping.is_set():
            if self._clock.monotonic_ns() >= until:
                if patience:
                    log.warning("nobody subscribed in time: starting without", seconds=patience)
                return

    def problems(self) -> list[str]:
        """Parts that do not move, and what has failed."""
        return [*map(str, self._watchdog.look()), *([self._failure] if self._failure else [])]

    def _is_alive(self) -> bool:
        """Every part has moved lately. One that has not is named, and ends the process: a library blocks it."""
        stuck = self._watchdog.look()
        for row in stuck:
            log.error("stuck", part=row.part, step=row.step, seconds=round(row.seconds, 1))
            self._code = PART_STUCK
            self._fail(str(row))
        return not stuck

    def _beats(self) -> list[Beat]:
        """Of every part that must move once the daemon is ready."""
        if not self.is_ready:
            return []
        beats = [Beat(lane.name, lane.step, lane.beat_ns) for lane in self._lanes.threads if lane.is_alive()]
        beats.append(Beat("publisher", "send", self._publisher.beat_ns))
        if (beat_ns := self.roster.beat_ns) is not None:
            beats.append(Beat("capture-processes", "serve", beat_ns))
        return beats

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self._stopping.set()


def _http_server(config: HttpConfig) -> HttpServer:
    try:
        from daemon.http.server import HttpServer
    except ImportError as error:
        raise ConfigError(f"http needs {error.name}: pip install 'lookoutd[http]'") from error
    return HttpServer(config)
