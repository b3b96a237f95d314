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
from daemon.config.root import Config
from daemon.config.sources import SourceConfig
from daemon.control.model_swap import ModelLoader, limit_of, log_swap, retire, serve, suits_now, too_slow
from daemon.control.reload import Change, difference
from daemon.control.sources import SourceManager
from daemon.errors import ConfigError, LookoutError, StoppingError
from daemon.lifecycle import ThreadPart
from daemon.pipeline.lanes import LaneSet
from daemon.pipeline.model_set import Filters, ModelSet, Prepared
from daemon.system import systemd
from daemon.system.background import BackgroundTask
from daemon.system.reload_answer import ReloadAnswer, write_answer
from daemon.system.runtime import Runtime
from daemon.system.stop_token import StoppedError
from daemon.system.watchdog import Pulse
from detectors.port import DetectorError

log = structlog.get_logger(__name__)
PersistSources = Callable[[Sequence[SourceConfig]], None]
ReloadSettings = Callable[[Config], Callable[[], None]]
_MAX_ABANDONED = 3  # models that were given up and are still opening
_POLL_S = 0.5


@dataclass
class _Request:
    """A request for a new configuration.

    Attributes:
        read: makes the new configuration from the current one.
        reloads: reads the configuration file again; the service manager is notified.
        persist: persists the new sources, None if they are not persisted.
        dry_run: check it, and change nothing.
        opening: the models that are being opened for it, by name, and their configuration.
        begun_ns: monotonic time.
    """

    read: Callable[[Config], Config]
    reloads: bool
    persist: PersistSources | None = None
    dry_run: bool = False
    future: Future[Change] = field(default_factory=Future)
    opening: BackgroundTask[dict[str, LaneSet]] | None = None
    opened_for: Config | None = None
    opens: Sequence[str] = ()
    begun_ns: int = 0


class Changes(ThreadPart):
    """Takes requests from any thread, and applies them in order in its own.

    Told to end, it refuses those that wait, and finishes the current one.

    Args:
        reload_settings: reads keys and tokens again; the function that it returns puts them into use, and those
            settings of the new configuration that are of no source and no model.
        follow: called with each new configuration, before its new sources begin.

    Attributes:
        config: the current configuration.
        reloads: the number of reloads that were applied (True), and that were refused (False).
    """

    def __init__(
        self,
        config: Config,
        sources: SourceManager,
        models: ModelSet,
        loader: ModelLoader,
        reload_settings: ReloadSettings,
        runtime: Runtime,
        follow: Callable[[Config], None] | None = None,
    ) -> None:
        super().__init__("changes", runtime, is_vital=False)
        self.config = config
        self.reloads = {True: 0, False: 0}
        self._sources, self._models = sources, models
        self._loader, self._reload_settings, self._follow = loader, reload_settings, follow
        self._waiting: deque[_Request] = deque()
        self._parked: _Request | None = None  # waits for a model
        self._abandoned: list[BackgroundTask[dict[str, LaneSet]]] = []  # given up, still opening
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
            request.begun_ns = self._clock.monotonic_ns()
            systemd.notify(f"RELOADING=1\nMONOTONIC_USEC={request.begun_ns // 1000}")
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
        unused = request.opening.result() if request.opening else {}
        try:
            new = request.read(self.config)
            change = difference(self.config, new)
            if not serve(unused, request.opened_for, change.models, new):
                self._open(request, new, change.models)
                return None
            captures = [self._sources.make(source) for source in (*change.changed, *change.added)]
            adopted = {name: unused[name] for name in change.models}
            refiltered = [source.id for source in (*change.added, *change.changed, *change.refiltered)]
            filters = self._models.filters_of(new, refiltered, adopted)
            self._models.check(new, adopted)
            if request.dry_run:
                return change
            self._models.prepare_analytics(new)
            use_settings = self._reload_settings(new) if request.reloads else None
            if request.persist:
                # The last step that may fail, and before any later change: a reload reads the file.
                request.persist(new.sources)
            unused = {name: row for name, row in unused.items() if name not in adopted}
        finally:
            retire(unused)
        if use_settings:
            use_settings()
        self._commit(new, change, captures, filters, adopted)
        return change

    def _commit(
        self,
        new: Config,
        change: Change,
        captures: Sequence[HostedCapture],
        filters: Filters,
        adopted: Prepared,
    ) -> None:
        """Put a change into effect; cannot be refused."""
        try:
            with self._sources.changing():
                self._sources.remove([*change.removed, *(source.id for source in change.changed)])
                self._models.configure(new, filters, adopted)
                for name, fresh in adopted.items():
                    log_swap(name, fresh.info)
                for id in change.removed:
                    self._models.forget(id)
                if self._follow:
                    self._follow(new)
                self._sources.add(captures)
                self.config = new
        except Exception as error:
            self._runtime.on_failure(f"a change failed half way: {type(error).__name__}: {error}")
            raise
        log.info("reloaded", **change.summary)

    # --- a model ---------------------------------------------------------------------------------------------------

    def _open(self, request: _Request, new: Config, names: Sequence[str]) -> None:
        """Open models in the background, and process the request again when they are ready."""
        with self._lock:
            stopping, superseded = self.ending.is_set, self._parked
            if not stopping:
                self._parked = request
        if stopping:
            raise StoppedError
        same = superseded if superseded and _opens(superseded, names, new) else None
        if same:
            request.opening, request.opened_for, same.opening = same.opening, same.opened_for, None
            request.opens = names
        if superseded:
            self._abandon(superseded, ConfigError("given up: another change of the model came first"))
        if not same:
            self._start_opening(request, new, names)

    def _start_opening(self, request: _Request, new: Config, names: Sequence[str]) -> None:
        self._abandoned = [row for row in self._abandoned if row.is_alive]
        if len(self._abandoned) >= _MAX_ABANDONED:
            with self._lock:
                self._parked = None
            raise DetectorError(f"{len(self._abandoned)} models that were given up are still opening: restart")
        opening = BackgroundTask(
            "opening the model",
            lambda stop: self._loader.prepare(self._models, new, names, stop),
            retire,
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
            request.opened_for, request.opening, request.opens = new, opening, names

    def _notify(self) -> None:
        with self._lock:
            self._wake.notify()

    def _check_timeout(self, request: _Request) -> None:
        """Refuse a request whose model takes too long."""
        opening = request.opening
        if opening is None or opening.done.is_set:
            return
        opening.log_progress()
        wanted = request.opened_for or self.config
        if opening.seconds > limit_of(wanted, request.opens):
            with self._lock:
                self._parked = None
            self._abandon(request, too_slow(wanted, request.opens))

    def _abandon(self, request: _Request, error: Exception) -> None:
        if request.opening and not request.opening.done.is_set:
            self._abandoned.append(request.opening)
        if request.opening:
            request.opening.abandon()
        self._refuse(request, error)

    # --- the end of a request --------------------------------------------------------------------------------------

    def _finish(self, request: _Request, change: Change) -> None:
        if request.reloads:
            self.reloads[True] += 1
            self._sources.retry()
            write_answer(ReloadAnswer(request.begun_ns, change.summary))
            systemd.notify("READY=1")
        request.future.set_result(change)

    def _refuse(self, request: _Request, error: Exception) -> None:
        if request.reloads:
            if not isinstance(error, StoppingError):
                self.reloads[False] += 1
                log.error("reload refused: nothing has changed", reason=str(error))
            begun_ns = request.begun_ns or self._clock.monotonic_ns()
            write_answer(ReloadAnswer(begun_ns, None, str(error), getattr(error, "mistakes", ())))
            systemd.notify("READY=1")
        else:
            log.info("change refused: nothing has changed", reason=str(error))
        with suppress(InvalidStateError):  # cancelled, or refused by `stop`
            request.future.set_exception(error)


def _opens(request: _Request, names: Sequence[str], new: Config) -> bool:
    """Whether a request opens just those models that a configuration needs."""
    opened_for = request.opened_for
    return request.opens == names and opened_for is not None and all(suits_now(opened_for, new, name) for name in names)
