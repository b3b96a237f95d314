"""From one configuration to the next while everything runs: one change at a time, whole or not at all.

Whatever takes long or may be refused comes first and touches nothing: reading, comparing, making what will capture
sources, opening a model. What follows cannot be refused, and is done in one go. A model is opened beside all that:
other changes go on meanwhile, and the one that wants the model is looked at again when the model is there.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from daemon.config import Config, LogConfig, ModelConfig, SourceConfig
from daemon.control.plan import options_of
from daemon.control.reload import Change, defaults_of, difference, is_same_model, least_confidence
from daemon.control.sources import AnyCapture, SourceManager
from daemon.errors import ConfigError, LookoutError, StoppingError
from daemon.pipeline.lanes import Generation, Lanes
from daemon.pipeline.stages import BoxFilter
from daemon.system import systemd
from daemon.system.background import BackgroundTask
from daemon.system.runtime import Runtime
from daemon.system.stop import Stop, StoppedError
from detectors.factory import Backend
from detectors.port import Detector, DetectorError, Options

log = structlog.get_logger(__name__)
OpenDetector = Callable[[Backend, Options], Detector]
TryModel = Callable[[Backend, Options, LogConfig, Stop], None]
KeepSources = Callable[[Sequence[SourceConfig]], None]
RenewSecrets = Callable[[Config], Callable[[], None]]
_MOST_LEFT = 3  # models that were given up and still have not come to an end
_LOOK_S = 0.5


@dataclass
class _Request:
    """Somebody wants another configuration.

    Attributes:
        read: makes the new one from the one that is.
        reloads: it reads the file again, which the service manager is told of.
        keep: writes the new sources where they outlive the process, None for nowhere.
        opening: the model that it waits for, and the configuration it was opened for.
    """

    read: Callable[[Config], Config]
    reloads: bool
    keep: KeepSources | None = None
    future: Future[Change] = field(default_factory=Future)
    opening: BackgroundTask[Generation] | None = None
    opened_for: Config | None = None


class Changes(threading.Thread):
    """Asked from any thread; a thread of its own does what is asked, in order.

    Args:
        try_model: tries a model where it can be killed, None to open it at once.
        renew_secrets: reads keys and tokens again with the file; what it returns makes them count.

    Attributes:
        config: as it is now.
    """

    def __init__(
        self,
        config: Config,
        sources: SourceManager,
        lanes: Lanes,
        open_detector: OpenDetector,
        try_model: TryModel | None,
        renew_secrets: RenewSecrets,
        runtime: Runtime,
    ) -> None:
        super().__init__(name="changes", daemon=True)
        self.config = config
        self._sources, self._lanes = sources, lanes
        self._open_detector, self._try_model, self._renew_secrets = open_detector, try_model, renew_secrets
        self._runtime, self._clock = runtime, runtime.clock
        self._waiting: deque[_Request] = deque()
        self._parked: _Request | None = None  # waits for its model
        self._left: list[BackgroundTask[Generation]] = []  # given up, and not at an end
        self._working = False
        self._reloading: Future[Change] | None = None  # asked for, and not begun
        self._stopping = Stop()
        self._lock = threading.Lock()
        self._called = threading.Condition(self._lock)

    def ask(
        self, read: Callable[[Config], Config], *, reloads: bool = False, keep: KeepSources | None = None
    ) -> Future[Change]:
        """Go over to another configuration: sources that are the same do not notice. Returns at once, raises nothing.

        Args:
            read: makes the new one from the one that is; it may be called again later, for a model that takes long.
            reloads: it reads the file again.
            keep: writes the new sources where they outlive the process; what it raises refuses the change.

        Returns:
            What has changed. If it cannot be done nothing has, and the error is a LookoutError or DetectorError.
        """
        request = _Request(read, reloads, keep)
        with self._lock:
            if self._stopping.is_set:
                request.future.set_exception(StoppingError())
            else:
                self._waiting.append(request)
                self._called.notify()
        return request.future

    def ask_to_reload(self, read: Callable[[Config], Config]) -> Future[Change]:
        """The same for a signal: as long as one such request has not begun, the next is the same."""
        with self._lock:
            if self._reloading is not None and any(row.future is self._reloading for row in self._waiting):
                return self._reloading
        self._reloading = self.ask(read, reloads=True)
        return self._reloading

    def stop_if(self, condition: Callable[[], bool]) -> bool:
        """Take no more changes, if nothing is asked for that is not done, and the condition holds."""
        with self._lock:
            if self._waiting or self._parked or self._working or not condition():
                return False
            self._stopping.set()
            self._called.notify()
            return True

    def stop(self) -> None:
        """Refuse all requests that wait. The change under way is finished."""
        with self._lock:
            self._stopping.set()
            refused = [*self._waiting, *([self._parked] if self._parked else [])]
            self._waiting.clear()
            self._parked = None
            self._called.notify()
        for request in refused:
            self._give_up(request, StoppingError())

    def run(self) -> None:
        with self._runtime.watchdog.pulse(self.name, vital=False) as pulse:
            while not self._stopping.is_set:
                pulse.rest()
                request = self._next()
                pulse.beat()
                if request:
                    self._deal_with(request)
                with self._lock:
                    self._working = False

    def _next(self) -> _Request | None:
        """The request whose model is there, or else the oldest; None if there is none for half a second."""
        with self._lock:
            parked = self._parked
            if parked and parked.opening and parked.opening.done.is_set:
                self._parked, self._working = None, True
                return parked
            if not (self._waiting or self._stopping.is_set):
                self._called.wait(_LOOK_S if parked else None)
            if self._waiting and not self._stopping.is_set:
                self._working = True
                return self._waiting.popleft()
        if parked:
            self._check_parked(parked)
        return None

    def _deal_with(self, request: _Request) -> None:
        if not request.opening and not request.future.set_running_or_notify_cancel():
            return
        if request.reloads and not request.opening:
            systemd.notify(f"RELOADING=1\nMONOTONIC_USEC={self._clock.monotonic_ns() // 1000}")
        try:
            change = self._go_over(request)
        except (LookoutError, DetectorError, StoppedError) as error:
            self._refuse(request, StoppingError() if isinstance(error, StoppedError) else error)
        except Exception as error:
            log.exception("reload failed unexpectedly")
            self._refuse(request, error)
        else:
            if change is not None:
                self._finish(request, change)

    def _go_over(self, request: _Request) -> Change | None:
        """Do what is asked; None if it has to wait for its model."""
        generation = request.opening.result() if request.opening else None
        try:
            new = request.read(self.config)
            change = difference(self.config, new)
            if change.model and not (generation and _is_for(request.opened_for, new)):
                self._open(request, new)
                return None
            captures = [self._sources.make(source) for source in (*change.changed, *change.added)]
            adopted = generation if change.model else None
            wishes = [*change.added, *change.changed, *change.wishes]
            filters = adopted.filters_of(new.active) if adopted else self._lanes.filters_of(wishes)
            renew = self._renew_secrets(new) if request.reloads else None
            if request.keep:
                # The last that may be refused, and before any change behind this one: a reload reads what is written.
                request.keep(new.sources)
            if adopted:
                generation = None
        finally:
            if generation:  # for a model that is not wanted any more
                generation.retire()
        if renew:
            renew()
        self._commit(new, change, captures, filters, adopted)
        return change

    def _commit(
        self,
        new: Config,
        change: Change,
        captures: Sequence[AnyCapture],
        filters: dict[str, BoxFilter],
        adopted: Generation | None,
    ) -> None:
        """From here on nothing is refused."""
        try:
            with self._sources.changing():
                self._sources.remove([*change.removed, *(source.id for source in change.changed)])
                if adopted:
                    adopted.update_filters(filters)
                    self._lanes.adopt(adopted)
                    self._tell_of(adopted)
                else:
                    self._lanes.update_filters(filters)
                for id in change.removed:
                    self._lanes.forget(id)
                self._sources.begin(captures)
                self.config = new
        except Exception as error:
            self._runtime.on_failure(f"a change broke off half way: {type(error).__name__}: {error}")
            raise
        log.info("reloaded", **change.words)

    # --- a model ---------------------------------------------------------------------------------------------------

    def _open(self, request: _Request, new: Config) -> None:
        """Open another model beside the one that works, and look at the request again when it is there."""
        with self._lock:
            stopping, superseded = self._stopping.is_set, self._parked
            if not stopping:
                self._parked = request
        if stopping:
            raise StoppedError
        same = superseded if superseded and _is_for(superseded.opened_for, new) else None
        if same:
            request.opening, request.opened_for, same.opening = same.opening, same.opened_for, None
        if superseded:
            self._give_up(superseded, ConfigError("given up: another change of the model came before this was open"))
        if not same:
            self._start_opening(request, new)

    def _start_opening(self, request: _Request, new: Config) -> None:
        self._left = [row for row in self._left if row.is_alive]
        if len(self._left) >= _MOST_LEFT:
            with self._lock:
                self._parked = None
            raise DetectorError(f"{len(self._left)} models that were given up still do not come to an end: restart")
        opening = BackgroundTask(
            "opening the model",
            lambda stop: self._prepare(new, stop),
            Generation.retire,
            self._clock,
            on_done=self._call,
        )
        with self._lock:
            if self._parked is not request:  # refused meanwhile, and nobody would take what comes of it
                raise StoppedError
            try:
                opening.start()
            except RuntimeError as error:
                self._parked = None
                raise DetectorError(f"no thread can be started to open the model: {error}") from error
            request.opened_for, request.opening = new, opening

    def _prepare(self, new: Config, stop: Stop) -> Generation:
        """In the opening's thread."""
        model, options = new.model, options_of(new)
        if self._try_model:
            self._try_model(model.backend, options, new.log, stop)
        detector = self._open_detector(model.backend, options)
        if stop.is_set:
            detector.close()
            raise StoppedError
        try:
            return self._lanes.prepare(detector, new.active, defaults_of(new), stop)
        except ConfigError:
            detector.close()
            raise

    def _call(self) -> None:
        with self._lock:
            self._called.notify()

    def _check_parked(self, request: _Request) -> None:
        """A model that takes too long is refused."""
        opening = request.opening
        if opening is None or opening.done.is_set:
            return
        opening.tell()
        model = (request.opened_for or self.config).model
        if opening.seconds > model.open_timeout_s:
            with self._lock:
                self._parked = None
            self._give_up(request, _too_slow(model))

    def _give_up(self, request: _Request, error: Exception) -> None:
        if request.opening and not request.opening.done.is_set:
            self._left.append(request.opening)
        if request.opening:
            request.opening.give_up()
        self._refuse(request, error)

    def _tell_of(self, generation: Generation) -> None:
        info = generation.info
        log.info("model swapped", name=info.name, digest=info.digest, precision=info.precision)
        for note in info.notes:
            log.warning(note)

    # --- the end of a request --------------------------------------------------------------------------------------

    def _finish(self, request: _Request, change: Change) -> None:
        if request.reloads:
            systemd.notify("READY=1")
        request.future.set_result(change)

    def _refuse(self, request: _Request, error: Exception) -> None:
        if request.reloads:
            if not isinstance(error, StoppingError):
                log.error("reload refused: all stays as it is", reason=str(error))
            systemd.notify("READY=1")
        else:
            log.info("change refused: all stays as it is", reason=str(error))
        with suppress(InvalidStateError):  # it was cancelled, or refused by `stop` already
            request.future.set_exception(error)


def _is_for(opened_for: Config | None, new: Config) -> bool:
    """A model that was opened for one configuration is what another wants."""
    return (
        opened_for is not None
        and is_same_model(opened_for.model, new.model)
        and least_confidence(opened_for) <= least_confidence(new)
    )


def _too_slow(model: ModelConfig) -> DetectorError:
    limit = f"{model.open_timeout_s:g} s"
    return DetectorError(f"model {model.path} did not open within {limit}: it is given up; see model.open_timeout_s")
