"""Applies new configurations to the running daemon, one at a time, completely or not at all.

Everything slow, and everything that may be refused, comes first and changes nothing: reading, comparing, making
captures, opening a model. The commit that follows cannot be refused. A model is opened in the background; other
changes go on meanwhile, and the request is processed again when the model is ready.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from daemon.capture.host import HostedCapture
from daemon.config.model import ModelConfig
from daemon.config.root import Config, LogConfig
from daemon.config.sources import SourceConfig
from daemon.control.plan import options_of
from daemon.control.reload import Change, defaults_of, difference, is_same_model, suits
from daemon.control.sources import SourceManager
from daemon.errors import ConfigError, LookoutError, StoppingError
from daemon.lifecycle import ThreadPart
from daemon.pipeline.lanes import Lanes, LaneSet
from daemon.pipeline.stages import BoxFilter
from daemon.system import systemd
from daemon.system.background import BackgroundTask
from daemon.system.runtime import Runtime
from daemon.system.stop_token import StoppedError, StopToken
from daemon.system.watchdog import Pulse
from detectors.factory import Backend
from detectors.port import Detector, DetectorError, Options

log = structlog.get_logger(__name__)
OpenDetector = Callable[[Backend, Options], Detector]
TryModel = Callable[[Backend, Options, LogConfig, StopToken], None]
PersistSources = Callable[[Sequence[SourceConfig]], None]
ReloadSettings = Callable[[Config], Callable[[], None]]
_MAX_ABANDONED = 3  # models that were given up and are still opening
_POLL_S = 0.5


@dataclass(frozen=True)
class ModelLoader:
    """Opens models.

    Attributes:
        trial: tries a model in a process that can be killed, None to open it at once.
        reserved: bytes of GPU memory planned for classifiers.
    """

    open: OpenDetector
    trial: TryModel | None = None
    reserved: int = 0


@dataclass
class _Request:
    """A request for a new configuration.

    Attributes:
        read: makes the new configuration from the current one.
        reloads: reads the configuration file again; the service manager is notified.
        persist: persists the new sources, None if they are not persisted.
        dry_run: check it, and change nothing.
        opening: the model that is being opened for it, and that model's configuration.
    """

    read: Callable[[Config], Config]
    reloads: bool
    persist: PersistSources | None = None
    dry_run: bool = False
    future: Future[Change] = field(default_factory=Future)
    opening: BackgroundTask[LaneSet] | None = None
    opened_for: Config | None = None


class Changes(ThreadPart):
    """Takes requests from any thread, and applies them in order in its own.

    Told to end, it refuses those that wait, and finishes the current one.

    Args:
        reload_settings: reads keys and tokens again; the function that it returns puts them into use, and those
            settings of the new configuration that are of no source and no model.

    Attributes:
        config: the current configuration.
        reloads: the number of reloads that were applied (True), and that were refused (False).
    """

    def __init__(
        self,
        config: Config,
        sources: SourceManager,
        lanes: Lanes,
        loader: ModelLoader,
        reload_settings: ReloadSettings,
        runtime: Runtime,
    ) -> None:
        super().__init__("changes", runtime, is_vital=False)
        self.config = config
        self.reloads = {True: 0, False: 0}
        self._sources, self._lanes = sources, lanes
        self._loader, self._reload_settings = loader, reload_settings
        self._waiting: deque[_Request] = deque()
        self._parked: _Request | None = None  # waits for a model
        self._abandoned: list[BackgroundTask[LaneSet]] = []  # given up, still opening
        self._working = False
        self._reloading: Future[Change] | None = None  # submitted, not begun
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)

    def submit(
        self,
        read: Callable[[Config], Config],
        *,
        reloads: bool = False,
        persist: PersistSources | None = None,
        dry_run: bool = False,
    ) -> Future[Change]:
        """Submit a change of the configuration; returns at once. Unchanged sources are not interrupted.

        Args:
            read: makes the new configuration from the current one; called again after a model was opened.
            reloads: it reads the configuration file again.
            persist: persists the new sources; an error refuses the change.
            dry_run: check the change as far as possible, and change nothing.

        Returns:
            The change. If it is refused nothing has changed, and the error is a LookoutError or DetectorError.
        """
        request = _Request(read, reloads, persist, dry_run)
        with self._lock:
            if self.ending.is_set:
                request.future.set_exception(StoppingError())
            else:
                self._waiting.append(request)
                self._wake.notify()
        return request.future

    def submit_reload(self, read: Callable[[Config], Config]) -> Future[Change]:
        """Submit a reload for a signal; a reload that has not begun yet serves later signals, too."""
        with self._lock:
            if self._reloading is not None and any(row.future is self._reloading for row in self._waiting):
                return self._reloading
        self._reloading = self.submit(read, reloads=True)
        return self._reloading

    def stop_if(self, condition: Callable[[], bool]) -> bool:
        """Take no more requests, if none is open and the condition holds."""
        with self._lock:
            if self._waiting or self._parked or self._working or not condition():
                return False
            self.ending.set()
            self._wake.notify()
            return True

    def request_stop(self) -> None:
        with self._lock:
            self.ending.set()
            refused = [*self._waiting, *([self._parked] if self._parked else [])]
            self._waiting.clear()
            self._parked = None
            self._wake.notify()
        for request in refused:
            self._abandon(request, StoppingError())

    def work(self, pulse: Pulse) -> None:
        while not self.ending.is_set:
            pulse.rest()
            request = self._next()
            pulse.beat()
            if request:
                self._process(request)
            with self._lock:
                self._working = False

    def _next(self) -> _Request | None:
        """The request whose model is ready, or the oldest request; None after half a second without one."""
        with self._lock:
            parked = self._parked
            if parked and parked.opening and parked.opening.done.is_set:
                self._parked, self._working = None, True
                return parked
            if not (self._waiting or self.ending.is_set):
                self._wake.wait(_POLL_S if parked else None)
            if self._waiting and not self.ending.is_set:
                self._working = True
                return self._waiting.popleft()
        if parked:
            self._check_timeout(parked)
        return None

    def _process(self, request: _Request) -> None:
        if not request.opening and not request.future.set_running_or_notify_cancel():
            return
        if request.reloads and not request.opening:
            systemd.notify(f"RELOADING=1\nMONOTONIC_USEC={self._clock.monotonic_ns() // 1000}")
        try:
            change = self._apply(request)
        except (LookoutError, DetectorError, StoppedError) as error:
            self._refuse(request, StoppingError() if isinstance(error, StoppedError) else error)
        except Exception as error:
            log.exception("reload failed unexpectedly")
            self._refuse(request, error)
        else:
            if change is not None:
                self._finish(request, change)

    def _apply(self, request: _Request) -> Change | None:
        """Apply a request; None if it has to wait for a model."""
        generation = request.opening.result() if request.opening else None
        try:
            new = request.read(self.config)
            change = difference(self.config, new)
            if change.model and not (generation and _is_for(request.opened_for, new)):
                self._open(request, new)
                return None
            captures = [self._sources.make(source) for source in (*change.changed, *change.added)]
            adopted = generation if change.model else None
            refiltered = [*change.added, *change.changed, *change.refiltered]
            filters = adopted.filters_of(new.active) if adopted else self._lanes.filters_of(refiltered)
            self._lanes.check_analytics(new, adopted)
            if request.dry_run:
                return change
            self._lanes.prepare_analytics(new)
            use_settings = self._reload_settings(new) if request.reloads else None
            if request.persist:
                # The last step that may fail, and before any later change: a reload reads the file.
                request.persist(new.sources)
            if adopted:
                generation = None
        finally:
            if generation:  # the model is not needed any more
                generation.retire()
        if use_settings:
            use_settings()
        self._commit(new, change, captures, filters, adopted)
        return change

    def _commit(
        self,
        new: Config,
        change: Change,
        captures: Sequence[HostedCapture],
        filters: dict[str, BoxFilter],
        adopted: LaneSet | None,
    ) -> None:
        """Put a change into effect; cannot be refused."""
        try:
            with self._sources.changing():
                self._sources.remove([*change.removed, *(source.id for source in change.changed)])
                if adopted:
                    adopted.update_filters(filters)
                    self._lanes.adopt(adopted)
                    self._log_swap(adopted)
                else:
                    self._lanes.update_filters(filters)
                self._lanes.configure_analytics(new)
                for id in change.removed:
                    self._lanes.forget(id)
                self._sources.add(captures)
                self.config = new
        except Exception as error:
            self._runtime.on_failure(f"a change failed half way: {type(error).__name__}: {error}")
            raise
        log.info("reloaded", **change.summary)

    # --- a model ---------------------------------------------------------------------------------------------------

    def _open(self, request: _Request, new: Config) -> None:
        """Open a model in the background, and process the request again when it is ready."""
        with self._lock:
            stopping, superseded = self.ending.is_set, self._parked
            if not stopping:
                self._parked = request
        if stopping:
            raise StoppedError
        same = superseded if superseded and _is_for(superseded.opened_for, new) else None
        if same:
            request.opening, request.opened_for, same.opening = same.opening, same.opened_for, None
        if superseded:
            self._abandon(superseded, ConfigError("given up: another change of the model came first"))
        if not same:
            self._start_opening(request, new)

    def _start_opening(self, request: _Request, new: Config) -> None:
        self._abandoned = [row for row in self._abandoned if row.is_alive]
        if len(self._abandoned) >= _MAX_ABANDONED:
            with self._lock:
                self._parked = None
            raise DetectorError(f"{len(self._abandoned)} models that were given up are still opening: restart")
        opening = BackgroundTask(
            "opening the model",
            lambda stop: self._prepare(new, stop),
            LaneSet.retire,
            self._clock,
            on_done=self._notify,
        )
        with self._lock:
            if self._parked is not request:  # refused meanwhile
                raise StoppedError
            try:
                opening.start()
            except RuntimeError as error:
                self._parked = None
                raise DetectorError(f"no thread can be started to open the model: {error}") from error
            request.opened_for, request.opening = new, opening

    def _prepare(self, new: Config, stop: StopToken) -> LaneSet:
        """Runs in the background thread."""
        model, options = new.model, options_of(new, self._loader.reserved)
        if self._loader.trial:
            self._loader.trial(model.backend, options, new.log, stop)
        detector = self._loader.open(model.backend, options)
        if stop.is_set:
            detector.close()
            raise StoppedError
        try:
            return self._lanes.prepare(detector, new.active, defaults_of(new), stop)
        except ConfigError:
            detector.close()
            raise

    def _notify(self) -> None:
        with self._lock:
            self._wake.notify()

    def _check_timeout(self, request: _Request) -> None:
        """Refuse a request whose model takes too long."""
        opening = request.opening
        if opening is None or opening.done.is_set:
            return
        opening.log_progress()
        model = (request.opened_for or self.config).model
        if opening.seconds > model.open_timeout_s:
            with self._lock:
                self._parked = None
            self._abandon(request, _too_slow(model))

    def _abandon(self, request: _Request, error: Exception) -> None:
        if request.opening and not request.opening.done.is_set:
            self._abandoned.append(request.opening)
        if request.opening:
            request.opening.abandon()
        self._refuse(request, error)

    def _log_swap(self, generation: LaneSet) -> None:
        info = generation.info
        log.info("model swapped", name=info.name, digest=info.digest, precision=info.precision)
        for note in info.notes:
            log.warning(note)

    # --- the end of a request --------------------------------------------------------------------------------------

    def _finish(self, request: _Request, change: Change) -> None:
        if request.reloads:
            self.reloads[True] += 1
            self._sources.retry()
            systemd.notify("READY=1")
        request.future.set_result(change)

    def _refuse(self, request: _Request, error: Exception) -> None:
        if request.reloads:
            if not isinstance(error, StoppingError):
                self.reloads[False] += 1
                log.error("reload refused: nothing has changed", reason=str(error))
            systemd.notify("READY=1")
        else:
            log.info("change refused: nothing has changed", reason=str(error))
        with suppress(InvalidStateError):  # cancelled, or refused by `stop`
            request.future.set_exception(error)


def _is_for(opened_for: Config | None, new: Config) -> bool:
    """Whether a model that was opened for one configuration suits another."""
    return opened_for is not None and is_same_model(opened_for.model, new.model) and suits(opened_for, new)


def _too_slow(model: ModelConfig) -> DetectorError:
    limit = f"{model.open_timeout_s:g} s"
    return DetectorError(f"model {model.path} did not open within {limit}: it is given up; see model.open_timeout_s")
