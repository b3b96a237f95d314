"""How a daemon lives: parts start in the order in which they are added, and stop in that of their phases."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeVar

import structlog

from daemon.system.background import BackgroundTask
from daemon.system.stop_token import StopToken
from detectors.port import DetectorError

if TYPE_CHECKING:
    from daemon.clock import Clock
    from daemon.system.runtime import Runtime
    from daemon.system.time_limits import Limits
    from daemon.system.watchdog import Pulse

log = structlog.get_logger(__name__)
_LEAST_S = 0.05  # for a part whose phase begins when its time is over

ALL_ENDED: Sequence[str] = ()
"""The answer of a part that has ended."""


class Phase(Enum):
    """Of a stop, in order, with the share of its time that is over at the phase's end.

    Consumers stop after producers, so that what is on its way arrives.
    """

    INTAKE = 0, 0.0  # nothing new begins: changes, claims, requests for pictures; waited for at the end
    SOURCES = 1, 0.5
    LANES = 2, 0.65
    CLASSIFIERS = 3, 0.7
    RULES = 4, 0.72
    MESSAGES = 5, 0.75
    FLEET = 6, 0.8  # until the last message is sent, no other daemon may take the sources
    API = 7, 0.8
    REPORTS = 8, 0.85
    PUBLISHER = 9, 1.0
    STORES = 10, 1.0
    MODELS = 11, 1.0  # libraries are closed when nobody uses them; each has a limit of its own
    DECODERS = 12, 1.0
    DRIVERS = 13, 1.0
    WATCHDOG = 14, 1.0

    @property
    def share(self) -> float:
        return self.value[1]


class Part(Protocol):
    """Something that lives while the daemon does."""

    @property
    def name(self) -> str: ...

    def start(self) -> None:
        """Begin. It may take long; a stop makes it return.

        Raises:
            StoppedError: the daemon is stopping.
        """
        ...

    def request_stop(self) -> None:
        """Ask it to end; returns at once. A second call does nothing."""
        ...

    def join(self, seconds: float) -> Sequence[str]:
        """Wait until it has ended, so long at most, and release what it holds. It may never have been started.

        One that still works is asked once more, at the end of all.

        Returns:
            The names of threads that still work; none when it has ended.
        """
        ...


_LIBRARIES = (Phase.MODELS, Phase.DECODERS, Phase.DRIVERS)
PartT = TypeVar("PartT", bound=Part)


class ThreadPart:
    """A part with a thread of its own, which the watchdog knows by its name.

    Subclasses have `work`, which returns soon after `ending` is set, and may have `close`, which is called once: by the
    thread at its end, or by `join` if there was no thread.

    Args:
        name: of the part and its thread.
        is_vital: the daemon cannot work without it.

    Attributes:
        ending: set by `request_stop`.
    """

    def __init__(self, name: str, runtime: Runtime, *, is_vital: bool = True) -> None:
        self.name, self.ending = name, StopToken()
        self._runtime, self._clock, self._is_vital = runtime, runtime.clock, is_vital
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._unclosed = threading.Lock()  # taken by whoever closes it

    @property
    def has_started(self) -> bool:
        return self._thread.ident is not None

    def is_alive(self) -> bool:
        """Whether its thread works."""
        return self._thread.is_alive()

    def start(self) -> None:
        """
        Raises:
            RuntimeError: the system gives no thread.
        """
        self._thread.start()

    def request_stop(self) -> None:
        self.ending.set()

    def join(self, seconds: float) -> Sequence[str]:
        if not self.has_started:
            self._close()
            return ALL_ENDED
        self._thread.join(seconds)
        return [self.name] if self._thread.is_alive() else ALL_ENDED

    def stop(self, seconds: float) -> Sequence[str]:
        """`request_stop`, and `join`."""
        self.request_stop()
        return self.join(seconds)

    def work(self, pulse: Pulse) -> None:
        """The thread calls this once."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what the part holds; nothing, unless a subclass does."""

    def on_error(self, error: Exception) -> None:
        """The work has failed. Called in its thread, where the error can be logged."""
        log.exception(f"{self.name} failed")
        self._runtime.on_failure(f"{self.name} failed: {error}")

    def _run(self) -> None:
        try:
            with self._runtime.watchdog.pulse(self.name, vital=self._is_vital) as pulse:
                self.work(pulse)
        except Exception as error:  # noqa: BLE001 - `on_error` tells it
            self.on_error(error)
        finally:
            self._close()

    def _close(self) -> None:
        if self._unclosed.acquire(blocking=False):
            self.close()


class Steps:
    """A part that is made of functions. None is for what there is nothing to do for.

    Args:
        start, request_stop, join: as of `Part`.
    """

    def __init__(
        self,
        name: str,
        *,
        start: Callable[[], object] | None = None,
        request_stop: Callable[[], object] | None = None,
        join: Callable[[float], Sequence[str] | None] | None = None,
    ) -> None:
        self.name = name
        self._start, self._request_stop, self._join = start, request_stop, join

    def start(self) -> None:
        if self._start:
            self._start()

    def request_stop(self) -> None:
        if self._request_stop:
            self._request_stop()

    def join(self, seconds: float) -> Sequence[str]:
        return (self._join(seconds) if self._join else None) or ALL_ENDED


class Closing:
    """A part that a library must close, which may never return.

    Args:
        close: called once, in a thread of its own.
    """

    def __init__(self, name: str, close: Callable[[], object], clock: Clock) -> None:
        self.name, self._close, self._clock = name, close, clock
        self._is_closed = False

    def start(self) -> None:
        """It works already."""

    def request_stop(self) -> None:
        """It works until it is closed."""

    def join(self, seconds: float) -> Sequence[str]:
        if self._is_closed:
            return ALL_ENDED
        self._is_closed = True
        closing = BackgroundTask(f"closing {self.name}", self._work, lambda _: None, self._clock)
        try:
            closing.start()
        except RuntimeError as error:  # the system gives no thread
            log.warning("left behind: it cannot be closed", what=self.name, reason=str(error))
            return ALL_ENDED
        if not closing.done.wait(seconds):
            log.warning("left behind: it does not close", what=self.name)
        return ALL_ENDED

    def _work(self, _: StopToken) -> None:
        with suppress(DetectorError):  # the reason is logged already
            self._close()


class Lifecycle:
    """The parts of one daemon. One thread calls it."""

    def __init__(self, clock: Clock, limits: Limits) -> None:
        self._clock, self._limits = clock, limits
        self._parts: list[tuple[Part, Phase]] = []

    def add(self, part: PartT, phase: Phase) -> PartT:
        """Add a part, which starts after those before it. Returns it."""
        self._parts.append((part, phase))
        return part

    def start(self, stop: StopToken) -> None:
        """Start all parts in order, until `stop` is set. The intake comes first: requests come while a model warms up.

        Raises:
            StoppedError: see `Part.start`; and whatever a part raises.
        """
        for part, _ in sorted(self._parts, key=lambda row: row[1] is not Phase.INTAKE):
            if stop.is_set:
                return
            part.start()

    def stop(self) -> list[str]:
        """Stop all parts, started or not, phase by phase. Returns the names of threads that still work."""
        begun, late = self._clock.monotonic_ns(), list[tuple[Part, float]]()
        for phase in Phase:
            rows = [part for part, own in self._parts if own is phase]
            for part in rows:
                part.request_stop()
            if phase is Phase.INTAKE:
                late += [(part, _LEAST_S) for part in rows]
                continue
            until = begun + round(self._limits.stop * phase.share * 1e9)
            for part in rows:
                if part.join(self._limits.close if phase in _LIBRARIES else self._left(until)):
                    late.append((part, 0.0))
        return [name for part, seconds in late for name in part.join(seconds)]

    def undo(self) -> None:
        """Stop the parts of a daemon that cannot be built, the last one first, without patience. Each is stopped,
        whatever another one raises."""
        with ExitStack() as stack:
            for part, phase in self._parts:
                stack.callback(part.join, self._limits.close if phase in _LIBRARIES else 0.0)
                stack.callback(part.request_stop)

    def leave_behind(self) -> None:
        """Stop none of the parts: a library is still inside one of them."""
        self._parts.clear()

    def _left(self, until_ns: int) -> float:
        return max(_LEAST_S, (until_ns - self._clock.monotonic_ns()) / 1e9)
