"""The composition root: builds everything, starts it and stops it in order. The only file that knows every class."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np
import structlog

from daemon.analytics.events import EventPublisher, Identity, Stores
from daemon.analytics.journal import Journal, journal_path
from daemon.analytics.loops import PYTHON, Loops, fastest_loops
from daemon.analytics.process.main import RulesOrder
from daemon.analytics.process.remote import RulesProcess
from daemon.analytics.snapshots import EventSnapshots
from daemon.analytics.stages import AnalyticsStages
from daemon.capture.sinks import DaemonSinks
from daemon.classification.opening import OpenClassifier, open_classifiers
from daemon.classification.second_stage import SecondStage, WithAttributes
from daemon.clock import Clock, SystemClock, process_age_s
from daemon.config import Config, ModelConfig
from daemon.control.admission import UNKNOWN_FPS, Admission
from daemon.control.capacity import measure_sizes
from daemon.control.changes import Changes, ModelLoader, OpenDetector
from daemon.control.decoder_rate import DecoderRate
from daemon.control.model_trial import try_model
from daemon.control.plan import (
    PROCESS_BYTES,
    classifier_options,
    decoder_backend_of,
    options_of,
    planned_processes,
    separates_rules,
    with_classifiers,
)
from daemon.control.reload import Change, defaults_of
from daemon.control.sources import MakeSource, SourceManager
from daemon.errors import LookoutError
from daemon.fleet.assembly import Parts as FleetParts
from daemon.fleet.assembly import doors_of, make_member
from daemon.fleet.description import Machine
from daemon.fleet.grants import GrantedSources
from daemon.fleet.member import Doors, Member
from daemon.fleet.overload import Overload
from daemon.fleet.own_figures import parts_of
from daemon.fleet.placer import Placer, PlacerThread
from daemon.http import open_http
from daemon.http.snapshots import Snapshots
from daemon.log import set_level
from daemon.monitoring.health import Health
from daemon.monitoring.monitor import FrameStatsListener, Monitor, Subject
from daemon.monitoring.probes import GpuProbe, GpuReader, ProcessProbe, open_gpu_probe
from daemon.pipeline.board import BoardRules, FrameBoard
from daemon.pipeline.lane import Observer, Pipeline
from daemon.pipeline.lanes import Lanes
from daemon.pipeline.ledger import Ledger
from daemon.pipeline.outbox import Outbox
from daemon.pipeline.views import SourceViews, check_views
from daemon.publish.build import BoxEncoder
from daemon.publish.fence import Fence, NoFence
from daemon.publish.masks import MaskEncoder
from daemon.publish.packets import PacketPublisher
from daemon.publish.port import Sink
from daemon.publish.publisher import Publisher
from daemon.publish.zeromq import ZeroMqSink
from daemon.sources.decode import NVDEC, DecoderBackend, NoHardwareDecoder
from daemon.sources.factory import make_source
from daemon.system import memory, systemd
from daemon.system.affinity import Affinity
from daemon.system.background import BackgroundTask
from daemon.system.gpus import name_visible_gpus
from daemon.system.limits import Limits
from daemon.system.mps import Mps
from daemon.system.runtime import Runtime
from daemon.system.stop import Stop, StoppedError
from daemon.system.tuning import check_room, configure_gc_and_switch_interval, raise_nofile_limit
from detectors.factory import gpus, open_classifier, open_detector, passed_over
from detectors.port import Detector, DetectorError, DetectorUnavailableError, HostImage, ModelInfo, SecondDetector
from detectors.ranges import wanted_ranges
from lookoutd.messages import Metrics, State, VideoFormat

if TYPE_CHECKING:
    from daemon.http.access import Access
    from daemon.http.server import HttpServer

log = structlog.get_logger(__name__)
T = TypeVar("T")

CUT_SHORT = 5  # exit code of a lossless replay that was stopped before its recordings ended
_POLL_S = 0.05
_OWN_THREADS = 16  # that begin with the sources, or later: of the API, of a change, of a stop
_SERVER_POLL_S = 1.0  # while the server of the model is away at the start

# Deadlines of the steps of `stop`, as shares of its time limit.
_SOURCES_END, _LANES_END, _CLASSIFIED, _FOUND, _SENT, _SERVED, _REPORTED = 0.5, 0.65, 0.7, 0.72, 0.75, 0.8, 0.85

OpenProbe = Callable[[Callable[[], Iterable[int]]], GpuProbe]
FindHardware = Callable[[Config, ModelInfo], DecoderBackend | NoHardwareDecoder]


class App:
    """A running Lookout.

    Args:
        stop: ends the daemon when it is set; the constructor stops waiting then, too.
        limits: time limits of all waits.
        open_detector: opens the model; replaced by tests.
        open_classifier: opens the model of a classifier; replaced by tests.
        make_source: makes a source; replaced by tests and benchmarks. Capture processes get it pickled.
        find_hardware: finds the GPU's decoder; replaced by tests.
        open_probe: opens the probe of the GPUs; replaced by tests.
        sinks: called with the ledger's rows; benchmarks use them.
        message_sinks: get all messages, besides subscribers.
        read: reads the configuration file for a reload.
        doors: the coordinator of the fleet, and the keeper of a lease; replaced by tests.

    Attributes:
        ledger: accounts of all frames.
        sources: all sources.
        changes: moves from one configuration to the next.
        events: publishes the events that rules find.
        health: of the daemon.
        snapshots: makes pictures on request.
        monitor, publisher: threads for metrics and for messages.
        member: the daemon as a member of a fleet; None without one.
        placer: places the sources of the fleet, if it is elected; None without one.
        ends_early: a lossless replay that is stopped before its end is no fault.

    Raises:
        ConfigError, DetectorError: from the constructor, with nothing left open.
        StoppedError: likewise, when `stop` is set.
    """

    def __init__(
        self,
        config: Config,
        *,
        stop: Stop | None = None,
        clock: Clock | None = None,
        limits: Limits | None = None,
        open_detector: OpenDetector = open_detector,
        open_classifier: OpenClassifier = open_classifier,
        make_source: MakeSource = make_source,
        find_hardware: FindHardware = decoder_backend_of,
        open_probe: OpenProbe = open_gpu_probe,
        sinks: Sequence[FrameStatsListener] = (),
        message_sinks: Sequence[Sink] = (),
        read: Callable[[], Config] | None = None,
        doors: Doors | None = None,
    ) -> None:
        self._config, self._clock, self._limits = config, clock or SystemClock(), limits or Limits()
        self._instance = secrets.token_hex(4)
        self._stop = stop or Stop()
        self._begun, self._finished = threading.Lock(), False
        self._result: int | None = None  # of `stop`
        self._life = threading.Lock()  # `start` and `stop` in turns
        self._open_probe = open_probe
        self._read_file = read or (lambda: self._config)
        self._message_sinks, self.ends_early = message_sinks, False
        self.ledger = Ledger([source.id for source in config.active])
        self.snapshots = Snapshots()
        self.health = Health(config.monitor.stuck_after_s, self._clock, self._stop)
        self._runtime = Runtime(self._clock, self.health.watchdog, self.health.fail, self._limits, wanted_ranges())
        self._outbox = Outbox(config.publisher.outbox, self.ledger, lossless=config.board.mode == "lossless")
        self._grants = self._make_grants()
        self._fence: Fence = self._grants or NoFence()
        self.member: Member | None = None
        self.placer: PlacerThread | None = None
        self._doors = doors
        self._overload = Overload(self._clock)
        self._http: HttpServer | None = None
        self._mps: Mps | None = None
        self._open_classifier = open_classifier
        with ExitStack() as undo:
            self._build(undo, open_detector, make_source, find_hardware, sinks)
            undo.pop_all()

    def _build(
        self,
        undo: ExitStack,
        open_detector: OpenDetector,
        make_source: MakeSource,
        find_hardware: FindHardware,
        sinks: Sequence[FrameStatsListener],
    ) -> None:
        memory.configure_malloc()
        raise_nofile_limit()  # capture processes, started from here, have it too
        config, instance = self._config, self._instance
        access = None
        if config.http.enabled:
            self._http, access = open_http(config.http, self._clock)
            undo.callback(self._http.stop, 0.0)
        self._open_publishers(undo, instance)
        self.events = self._open_events(undo, instance)
        if _may_use_gpu(config.model):
            self._name_gpus(undo)
            has_gpu = self._grants is None or bool(gpus())  # the sources of a fleet may come to the GPU later
            if config.gpu.mps == "auto" and planned_processes(config) > 1 and has_gpu:
                self._share_gpu(undo)
        self.second = self._open_second_stage(undo)
        detector = self._open(open_detector)
        closing = ExitStack()
        closing.callback(detector.close)
        undo.callback(closing.close)
        board = self._make_board(detector.info)
        views = SourceViews(config, detector.info.input_size)
        views.add_listener(board.set_pictures)
        views.add_size_listener(board.set_sizes)
        pipeline = self._make_pipeline(detector.info, board, views, self._open_rules(undo))
        self._board = board
        self._lanes = Lanes(detector, config.active, defaults_of(config), pipeline)
        self.health.conditions.append(lambda: self._lanes.unavailable)
        self.health.conditions.append(lambda: self.ledger.fault_of_model)
        self.health.notes.append(lambda: self._overload.reason)
        closing.pop_all()
        undo.callback(self._lanes.retire)
        backend = self._in_time(undo, "looking for the GPU's decoder", lambda _: find_hardware(config, self._planned))
        admission = self._in_time(undo, "measuring the detector", lambda _: self._make_admission(backend, detector))
        views.add_listener(admission.set_pictures)
        views.add_size_listener(admission.set_sizes)
        captured = DaemonSinks(board, self.ledger, self._announce, admission, self._forget, packets=self._packets)
        self.sources = SourceManager(config, backend, make_source, captured, self._runtime)
        undo.callback(self.sources.close)
        undo.callback(self.sources.decoder_pool.close)
        self.monitor = self._make_monitor(instance, admission, sinks)
        undo.callback(self.monitor.stop, 0.0)
        trial = try_model if open_detector is _DEFAULT_DETECTOR else None
        self.changes = Changes(
            config,
            self.sources,
            self._lanes,
            ModelLoader(open_detector, trial, self.second.memory_bytes),
            partial(self._reload_settings, access),
            self._runtime,
        )
        self._make_fleet_parts(undo, admission)
        if self._http and access:
            self._serve_http(self._http, access)
        self.changes.start()

    def _make_fleet_parts(self, undo: ExitStack, admission: Admission) -> None:
        """The member and the placer of a fleet, if the configuration has one."""
        if self._grants is None:
            return
        self.member = self._make_member(self._grants, admission)
        undo.callback(self.member.stop, 0.0)
        self.placer = PlacerThread(Placer(self._clock, self._config.fleet.ttl_s), self._runtime)
        self.member.listeners.append(self.placer.notify)

    def _open_publishers(self, undo: ExitStack, instance: str) -> None:
        """The threads and sockets of messages, and of packets of video."""
        config = self._config.publisher
        self._zeromq = ZeroMqSink(config, self._clock)
        self._boxes = BoxEncoder(MaskEncoder(config.masks, config.max_masks, self.ledger))
        self._packets = PacketPublisher(self._zeromq, config, instance, self._fence, self._runtime)
        self.publisher = Publisher(
            [self._zeromq, *self._message_sinks],
            self._outbox,
            self.ledger,
            self._boxes,
            instance,
            self._fence,
            self._packets.answer,
            self._runtime,
        )
        undo.callback(self.publisher.stop, 0.0)
        undo.callback(self._packets.stop, 0.5)

    @property
    def endpoint(self) -> str:
        """Where subscribers connect."""
        return self._zeromq.endpoint

    @property
    def http_url(self) -> str | None:
        """Address of the HTTP API on this machine; None without one."""
        if self._http is None:
            return None
        http = self._config.http
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(http.host, http.host)  # noqa: S104 - not bound here
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if http.tls_certificate else 'http'}://{shown}:{self._http.port}"

    @property
    def model(self) -> ModelInfo:
        return self._lanes.info

    @property
    def memory_plan(self) -> tuple[tuple[str, int], ...]:
        """Planned bytes of the GPU's memory by purpose, with the sources connected now."""
        models, decoding = self._planned.memory, ("decoding", self.sources.memory)
        if not self.sources.pids:
            return (*models, decoding)
        processes = len(self.sources.pids) * PROCESS_BYTES if self.model.gpu is not None else 0
        return (*models, decoding, ("capture processes", processes))

    @property
    def _planned(self) -> ModelInfo:
        """The model, with the memory of all models in its plan."""
        return with_classifiers(self.model, self.second.models)

    @property
    def pids(self) -> list[int]:
        """Ids of this process, of the capture processes, and of the rules'."""
        return [os.getpid(), *self.sources.pids, *self._analytics.rules.pids]

    def run(self) -> int:
        """Start, work until a stop or the end of all recordings, and stop; returns the exit code."""
        try:
            self.start()
            self.wait()
        except BaseException:
            self.stop()
            raise
        return self.stop()

    def start(self) -> None:
        """Start lanes first, then the publisher; sources last, so that no frame waits for a model that still loads.

        A second call does nothing, nor does a call after `stop`.

        Raises:
            SourceError: no thread can be started for a source.
        """
        if not self._begun.acquire(blocking=False):
            return
        with self._life:
            if not self._stop.is_set:
                with suppress(StoppedError):
                    self._begin()

    def _begin(self) -> None:
        check_room(_OWN_THREADS + len(self._config.active))
        self._log_model()
        self.health.watchdog.start()
        self._lanes.start(self._stop)
        self.second.start()
        self.publisher.start()
        for store in self._stores:
            store.start()
        self.monitor.start()
        configure_gc_and_switch_interval(captures=self.sources.captures_locally)
        self._await_subscriber()
        if self._stop.is_set:
            return
        self.sources.start()
        self._join_fleet()
        counts = {"sources": len(self.sources.captures), "lanes": len(self._lanes.threads)}
        log.info("ready", endpoint=self.endpoint, **counts, **self._age())
        self.health.is_ready = True
        systemd.notify("READY=1")

    def wait(self) -> None:
        """Wait for `request_stop`, a failure, or the end of the last recording."""
        seen = False
        while not self._clock.wait(self._stop, _POLL_S):
            if not seen and any(count.published for count in self.ledger.counts().values()):
                seen = True
                log.info("first detections published", **self._age())
            if self._has_ended and self.changes.stop_if(lambda: self._has_ended):
                self._finished = True
                log.info("every recording has ended")
                return

    @property
    def _has_ended(self) -> bool:
        """Whether all recordings have ended. A member of a fleet waits for the next source."""
        return self.member is None and self.sources.finished

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was requested, or a part has failed."""
        return self._stop.is_set

    def request_stop(self) -> None:
        """Make `wait` return; any thread may call it."""
        self._stop.set()

    def stop(self) -> int:
        """Stop sources, board, lanes, publisher and monitor. Returns the exit code; a second call returns the same.

        A requested stop takes `Limits.stop` at most, and counts unfinished frames as dropped. After the end of all
        recordings there is no time limit: the last message is sent first.
        """
        finished = self._finished or (self.health.is_ready and self._has_ended)
        if not finished:
            self._stop.set()  # so that `start` returns
        with self._life:
            if self._result is None:
                self._result = self._end(finished=finished)
            return self._result

    def _end(self, *, finished: bool) -> int:
        systemd.notify("STOPPING=1")
        self.changes.request_stop()
        if self.member:
            self.member.leave()
        self.snapshots.stop()
        was_ready, self.health.is_ready = self.health.is_ready, False
        finished = finished and self._drain()
        begun = self._clock.monotonic_ns()

        def left(share: float, minimum: float = 0.05) -> float:
            return max(minimum, self._limits.stop * share - (self._clock.monotonic_ns() - begun) / 1e9)

        self._stop_sources(left)
        self._board.close()
        for lane in self._lanes.threads:
            lane.join(left(_LANES_END))
        self._board.abandon()
        for classifier in self.second.classifiers:
            classifier.request_stop()
        for classifier in self.second.classifiers:
            classifier.join(left(_CLASSIFIED))
        if self._rules_process:
            self._rules_process.stop(left(_FOUND))
        self.events.flush()
        if self.publisher.is_alive():
            self._outbox.flush(left(_SENT))  # so that the last report counts every frame
        self._outbox.abandon()
        if self.placer:
            self.placer.stop(left(_SERVED))  # until now it has moved the sources of this member, too
        if self.member:
            self.member.stop(left(_SERVED))  # the last message is sent: others may take the sources
        if self._http:
            self._http.stop(min(self._limits.requests, left(_SERVED)))
        self.monitor.stop(left(_REPORTED))
        self._packets.stop(left(_REPORTED))
        self.publisher.stop(left(1.0))
        for store in self._stores:
            store.stop(left(1.0))
        self._close_rest()
        self.health.watchdog.stop(left(1.0))
        self.changes.join(_POLL_S)
        self._log_overdue_threads()
        log.info("stopped", seconds=round((self._clock.monotonic_ns() - begun) / 1e9, 2))
        if self.health.failure:
            log.error("ended by a failure", reason=self.health.failure)
            return self.health.exit_code
        if self._outbox.lossless and was_ready and not finished and not self.ends_early:
            log.error("a replay was cut short: frames that were not published are counted as `shutdown`")
            return CUT_SHORT
        return 0

    def _stop_sources(self, left: Callable[[float, float], float]) -> None:
        if self._rules_process:
            self._rules_process.end_by(left(_FOUND, 0.0))  # if it hangs, all that announce the end of a source wait
        self.sources.stop()
        self.sources.join(lambda: left(_SOURCES_END, 0.0))

    def _drain(self) -> bool:
        """After the end of all recordings, wait until all messages are sent; False if a stop is requested meanwhile."""
        rules = self._rules_process
        while not ((rules is None or rules.flush(_POLL_S)) and self._outbox.flush(_POLL_S)):
            if self._stop.is_set:  # the watchdog finds a publisher that hangs
                return False
        return True

    def _close_rest(self) -> None:
        """Close the rest within a time limit. The last lane and the last capture close the parts that they use."""
        self._close_in_time(self._lanes.retire)
        if not self._lanes.join(self._limits.close):
            log.warning("the detector is left open: a lane is still inside it")
        rest: list[Callable[[], object]] = [self.sources.close]
        if not self.sources.threads:
            rest.append(self.sources.decoder_pool.close)
        if self._mps:
            rest.append(self._mps.close)
        for close in rest:
            self._close_in_time(close)

    def _close_in_time(self, close: Callable[[], object]) -> None:
        def work(_: Stop) -> None:
            with suppress(DetectorError):  # the reason is told already
                close()

        closing = BackgroundTask("closing", work, lambda _: None, self._clock)
        try:
            closing.start()
        except RuntimeError as error:  # the system gives no thread
            log.warning("left behind: it cannot be closed", reason=str(error))
            return
        if not closing.done.wait(self._limits.close):
            log.warning("left behind: it does not close", what=getattr(close, "__qualname__", "a part"))

    def _log_overdue_threads(self) -> None:
        ours = (self.publisher, self._packets, self.monitor, self.changes, *self._stores, *self.second.classifiers)
        parts = (*self.sources.threads, *self._lanes.threads, *ours)
        overdue = [thread.name for thread in parts if thread.is_alive()]
        if overdue:
            log.warning("left behind: still blocked after the time to stop", threads=overdue)

    # --- how it is made --------------------------------------------------------------------------------------------

    def _in_time(self, undo: ExitStack, what: str, work: Callable[[Stop], T]) -> T:
        """Run work that may take long in a thread of its own, so that a stop can interrupt the wait."""
        opening = BackgroundTask(what, work, lambda _: None, self._clock).start()
        try:
            return opening.wait(
                self._stop, self._config.model.open_timeout_s, lambda: LookoutError(f"{what} takes too long")
            )
        except (StoppedError, LookoutError):
            if not opening.done.wait(self._limits.close):
                undo.pop_all()  # it is still inside what would be closed; the process ends
            raise

    def _open(self, open_detector: OpenDetector) -> Detector:
        model = self._config.model
        limit = model.open_timeout_s
        opening = BackgroundTask(
            "opening the model",
            partial(self._open_patiently, open_detector),
            lambda overdue: overdue.close(),
            self._clock,
        ).start()
        return opening.wait(
            self._stop,
            limit,
            lambda: DetectorError(f"model {model.path} did not open within {limit:g} s; see model.open_timeout_s"),
        )

    def _open_patiently(self, open_detector: OpenDetector, given_up: Stop) -> Detector:
        """Open the model, with the memory that classifiers leave."""
        options = options_of(self._config, self.second.memory_bytes)
        return self._patiently(lambda: open_detector(self._config.model.backend, options), given_up)

    @staticmethod
    def _patiently(open_one: Callable[[], T], given_up: Stop) -> T:
        """Open a model; one on a server that is away when the server is back."""
        reported = False
        while True:
            try:
                return open_one()
            except DetectorUnavailableError as error:
                if not reported:
                    log.warning("waiting for the server of the model", reason=str(error))
                reported = True
                if given_up.wait(_SERVER_POLL_S):
                    raise

    def _open_rules(self, undo: ExitStack) -> RulesProcess | None:
        """The process of rules, which starts with the first of them; None where lanes evaluate them."""
        config = self._config
        if not separates_rules(config):
            return None
        rules = RulesProcess(RulesOrder(config.log, config.model.cache), self.events, self._runtime)
        undo.callback(rules.stop, 0.0)
        return rules

    def _make_pipeline(
        self, model: ModelInfo, board: FrameBoard, views: SourceViews, rules: RulesProcess | None
    ) -> Pipeline:
        """The parts around the lanes, checked against the model."""
        config = self._config
        self._rules_process = rules
        parts = self.ledger, self.events, self.publisher.note, rules, self._compile
        self._analytics = analytics = AnalyticsStages(config, *parts)
        check_views(config, model)
        stages = WithAttributes(analytics, self.second)
        stages.check(config, model.labels)
        followers = [self.second] if config.classifiers else []
        core = (board, self._outbox, self.ledger, self._runtime)
        return Pipeline(*core, self._observers(), stages if config.classifiers else analytics, followers, views)

    def _compile(self, cache: Path | None) -> Loops:
        """The loops of the tracker, and with them the text of boxes: numba, which takes 120 MB, is there then."""
        loops = fastest_loops(cache)
        if loops is not PYTHON and self._config.publisher.encoding == "json" and not self._message_sinks:
            self._boxes.compile(cache)
        return loops

    def _open_second_stage(self, undo: ExitStack) -> SecondStage:
        """Open the classifiers, on the backend of the model. They are opened before it, so that it is opened with the
        memory that they leave."""
        config = self._config
        jobs = [(row.name, classifier_options(config, row)) for row in config.classifiers]
        open_all = partial(open_classifiers, self._open_classifier, config.model.backend, jobs)
        opened: list[SecondDetector] = []
        if jobs:
            opened = self._in_time(undo, "opening classifiers", partial(self._patiently, open_all))
        second = SecondStage(config, opened, self.health.degrade, self.events.on_event, self._runtime)
        for classifier in second.classifiers:
            undo.callback(classifier.stop, 0.0)
        return second

    def _log_model(self) -> None:
        info = self.model
        log.info("model", **{key: getattr(info, key) for key in ("name", "digest", "head", "backend", "precision")})
        if self._config.model.backend == "auto":
            for row in passed_over(info.backend):
                log.info("backend passed over", backend=row.backend, reason=row.reason)
        for note in info.notes:
            log.warning(note)
        if info.startup:
            log.info("model opened", **{name.replace(" ", "_"): seconds for name, seconds in info.startup})

    def _name_gpus(self, undo: ExitStack) -> None:
        """Name the GPUs before their first use."""
        if gpus():
            reason = self._in_time(undo, "asking for the names of GPUs", lambda _: name_visible_gpus())
            if reason:
                log.warning("GPUs have no names: figures may be of others", reason=reason)

    def _share_gpu(self, undo: ExitStack) -> None:
        """Start MPS before the first use of the GPU, so that capture processes and lanes run on it side by side."""
        mps = self._mps = self._in_time(undo, "starting MPS", lambda _: Mps())
        undo.callback(mps.close)
        log.info(
            "capture processes and lanes share the GPU",
            by="MPS" if mps.reason is None else "turns",
            reason=mps.reason,
        )

    def _make_board(self, info: ModelInfo) -> FrameBoard:
        board = self._config.board
        rules = BoardRules(
            depth=board.depth if board.mode == "lossless" else None,
            max_age_ns=round(board.max_age_ms * 1e6),
            lanes=info.lanes,
            batch=board.max_batch,
            gather=info.gpu is not None,
        )
        active = self._config.active
        patient = [source.id for source in active if source.is_patient]
        return FrameBoard([source.id for source in active], self.ledger, self._clock, rules, patient)

    def _make_monitor(self, instance: str, admission: Admission, sinks: Sequence[FrameStatsListener]) -> Monitor:
        affine = self.model.gpu is not None and self._config.gpu.avoid_interrupts
        subject = Subject(
            self.ledger,
            self.sources,
            self.publisher,
            self._outbox,
            ProcessProbe(lambda: self.pids),
            GpuReader(lambda: self._open_probe(lambda: self.pids), self._clock),
            instance,
            self.second.metrics,
        )
        return Monitor(
            self._config.monitor,
            subject,
            self._runtime,
            sinks,
            self._on_metrics(admission),
            self._on_tick(Affinity(lambda: self.pids).check if affine else lambda _: None),
        )

    def _on_metrics(self, admission: Admission) -> Callable[[Metrics], None]:
        def on_metrics(metrics: Metrics) -> None:
            admission.learn(metrics)
            self._overload.learn(metrics)

        return on_metrics

    def _on_tick(self, check: Callable[[int], None]) -> Callable[[int], None]:
        def on_tick(now_ns: int) -> None:
            check(now_ns)
            self._analytics.rules.tick(now_ns)
            self.events.tick(now_ns)

        return on_tick

    def _open_events(self, undo: ExitStack, instance: str) -> EventPublisher:
        config = self._config.events
        journal = snapshots = None
        if path := journal_path(config):
            journal = Journal(path, config, self._runtime)
            undo.callback(journal.stop, 0.0)
            log.info("journal of events", path=str(path))
        if config.snapshots:
            snapshots = EventSnapshots(config.snapshots, self._runtime)
            undo.callback(snapshots.stop, 0.0)
        stores = Stores(journal, snapshots)
        identity = Identity(instance, self._fence.owner if self._config.fleet.coordinator else None)
        return EventPublisher(identity, self._outbox, stores, config.counts_interval_s, self._clock)

    @property
    def _stores(self) -> list[Journal | EventSnapshots]:
        return [store for store in (self.events.journal, self.events.snapshots) if store]

    def _observers(self) -> list[Observer]:
        """Pictures on request, and pictures of events."""
        return [self.snapshots, self.events.snapshots] if self.events.snapshots else [self.snapshots]

    def _make_admission(self, backend: DecoderBackend | NoHardwareDecoder, detector: Detector) -> Admission:
        """Admission by the detector's rate, measured before its lanes are made, on pictures like the sources'."""
        mode, (width, height) = self._config.admission, self._config.gpu.frame_size
        if mode == "off" and not self._grants:
            return Admission()
        grey = HostImage(np.full((height, width, 3), 114, np.uint8))
        costs = measure_sizes(
            detector, [grey if isinstance(backend, NoHardwareDecoder) else detector.sample(width, height)]
        )
        rate = costs.rates[costs.own]
        rates = {f"detector_fps_{width}x{height}": round(fps, 1) for (width, height), fps in costs.rates.items()}
        self._machine = Machine(rate, backend)
        log.info("admission", mode=mode, detector_fps=round(rate, 1), **(rates if len(rates) > 1 else {}))
        if mode == "off":
            return Admission()

        def decoder(format: VideoFormat) -> float:
            if format.decoder != NVDEC:
                return 0.0
            size = format.width, format.height
            return backend.estimate(format.codec, *size, format.fps or UNKNOWN_FPS, low_latency=True)[0]

        return Admission(mode, rate, decoder, DecoderRate(self._config.gpu.device), costs)

    def _make_grants(self) -> GrantedSources | None:
        fleet = self._config.fleet
        if fleet.coordinator is None:
            return None
        name = fleet.member_name(self._config.gpu.device)
        return GrantedSources(name, fleet.name, fleet.on_coordinator_loss, self._clock)

    def _make_member(self, grants: GrantedSources, admission: Admission) -> Member:
        parts = FleetParts(
            self.changes,
            self.sources,
            self.events,
            self.monitor,
            admission,
            self._machine,
            self._overload,
            lambda: self._planned,
            self.endpoint,
            self.http_url,
        )
        doors = self._doors or doors_of(self._config, self._runtime)
        member = make_member(self._config, grants, parts, doors, self._runtime)
        self.health.conditions.append(lambda: member.condition)
        return member

    def _join_fleet(self) -> None:
        """Start the member, and wait until it has joined, or goes on trying.

        Raises:
            LookoutError: this daemon cannot be a member.
        """
        if self.member is None:
            return
        self.member.start()
        if self.placer:
            self.placer.start()
        while not self.member.settled.wait(_POLL_S) and not self._stop.is_set:
            pass
        if self.member.refusal:
            raise self.member.refusal

    def _serve_http(self, server: HttpServer, access: Access) -> None:
        from daemon.control.source_store import SourceStore
        from daemon.http.exposition import Exposition, Figures
        from daemon.http.routes import Parts, Routes

        http, fleet = self._config.http, None
        if self.member and self._grants and self.placer:
            fleet = parts_of(self._config.fleet, self.member, self._grants, self.placer.placer)
        figures = Figures(
            model=lambda: self.model,
            publisher=self.publisher.metrics,
            report=lambda: self.monitor.last,
            refused=lambda: access.refused,
            reloads=lambda: self.changes.reloads,
            is_overloaded=lambda: self._overload.reason is not None,
            events=self.events,
            classifiers=self.second.metrics,
            fleet=fleet,
        )
        exposition = Exposition(self.ledger, self.sources, figures)
        kept = SourceStore(http.sources_file) if http.sources_file else None
        parts = Parts(
            self.changes,
            self.sources,
            self.health,
            self.snapshots,
            exposition,
            kept,
            self._read,
            self.events,
            self._facts,
            fleet,
        )
        routes = Routes(parts, http, access)
        self.monitor.add_listener(exposition.histograms.observe)
        server.serve(routes.starlette())

    def _facts(self) -> dict[str, object]:
        model, config = self.model, self.changes.config
        return {
            "instance": self._instance,
            "endpoint": self.endpoint,
            "model": model.name,
            "labels": list(model.labels),
            "tracked": [row.id for row in config.sources if config.tracking_of(row) is not None],
        }

    def _announce(
        self,
        source: str,
        session: str | None,
        state: State,
        reason: str | None = None,
        retry_in_s: float | None = None,
        format: VideoFormat | None = None,
    ) -> None:
        rules = self._analytics.rules
        tell = self.publisher.announcement(source, session, state, reason, retry_in_s, format)
        rules.on_state(source, state, self._clock.monotonic_ns())
        rules.after(tell)  # the last events come before `ended`

    def _forget(self, source: str) -> None:
        def forget() -> None:
            self.publisher.forget(source)
            self.events.forget(source)

        self._analytics.rules.after(forget)

    # --- while it runs ---------------------------------------------------------------------------------------------

    def _read(self) -> Config:
        """The file's configuration; the sources of a fleet are not in it. Called in the thread of changes."""
        found = self._read_file()
        if self.member is None:
            return found
        return msgspec.structs.replace(found, sources=self.changes.config.sources)

    def reload_file(self) -> Future[Change]:
        """Read the configuration file again. Several requests before it begins cause one reload."""
        return self.changes.submit_reload(lambda _: self._read())

    def _reload_settings(self, access: Access | None, new: Config) -> Callable[[], None]:
        """Read keys and tokens again; the returned function puts them into use, and how to log and to report.

        Raises:
            ConfigError: a file cannot be read.
        """
        reloads = [self._zeromq.reload_clients(), *([access.reload(new.http)] if access else [])]

        def apply() -> None:
            for each in reloads:
                each()
            set_level(new.log)
            self.monitor.reconfigure(new.monitor)

        return apply

    @staticmethod
    def _age() -> dict[str, float]:
        """The age of the process, for the log."""
        return {"seconds_since_start": round(process_age_s(), 2)}

    def _await_subscriber(self) -> None:
        timeout_s = self._config.publisher.wait_for_subscriber_s
        until = self._clock.monotonic_ns() + round(timeout_s * 1e9)
        while not self.publisher.has_subscribers.wait(_POLL_S if timeout_s else 0) and not self._stop.is_set:
            if self._clock.monotonic_ns() >= until:
                if timeout_s:
                    log.warning("nobody subscribed in time: starting without", seconds=timeout_s)
                return


_DEFAULT_DETECTOR = open_detector


def _may_use_gpu(model: ModelConfig) -> bool:
    return model.backend in ("auto", "trt")
