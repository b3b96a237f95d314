"""Clocks and timing of a source: retries, rate limit, pacing, lag, capture time."""

from __future__ import annotations

import random

import structlog

from daemon.clock import Clock
from daemon.config.sources import ReconnectConfig
from lookout.messages import FrameClock

log = structlog.get_logger(__name__)
_MAX_LATE_NS = 500_000_000  # a recording that is later than this restarts its schedule instead of catching up
_CREDIBLE_NS = 10_000_000_000  # a camera's clock that is further off is ignored
_JUMP_NS = 60_000_000_000  # between two pictures: a new timeline
_BACKLOG_NS = 500_000_000  # a slower first picture leaves a backlog
_DRIFT = 1000  # clocks drift apart by less than 1 / this
_SET_NS = 10_000_000  # a report that moves the camera's time by more is of a clock that was set
_WINDOW_NS = 10_000_000_000  # if all frames of so long
_JUMPED_NS = 250_000_000  # are later by so much, timestamps have jumped
_STEP_NS = 1_000_000  # step of the published error, so that it does not change with every frame


class Backoff:
    """Seconds before each retry: exponential, capped, with jitter, so that the cameras of one switch do not all come
    back at once."""

    def __init__(self, config: ReconnectConfig, rng: random.Random | None = None) -> None:
        self._config = config
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._tries = self._refusals = 0

    def next(self, *, refused: bool = False) -> float:
        """
        Args:
            refused: the login was refused.
        """
        config = self._config
        # Bounded, so that years of retries do not overflow.
        if refused:
            base = min(config.refused_max_s, config.refused_s * config.factor ** min(self._refusals, 64))
            self._refusals += 1
        else:
            base = min(config.max_s, config.initial_s * config.factor ** min(self._tries, 64))
            self._tries += 1
        return base * (1.0 - config.jitter * self._rng.random())

    def reset(self) -> None:
        self._tries = self._refusals = 0


class RateLimit:
    """Passes at most `fps` frames a second, evenly, by their timestamps in ns; a jump in time restarts it."""

    def __init__(self, fps: float) -> None:
        self._period = 1e9 / fps
        self._due: float | None = None

    def allows(self, time_ns: int) -> bool:
        early = 0.0 if self._due is None else self._due - time_ns
        if self._due is None or not -self._period <= early <= 2 * self._period:
            self._due = time_ns + self._period
            return True
        # A quarter of a period early is on time: cameras jitter and timestamps are rounded.
        if early > self._period / 4:
            return False
        self._due += self._period
        return True


class Pacer:
    """Plays a recording at its own rate by its timestamps. A jump of over a minute restarts the schedule.

    Args:
        source: id, for the log.

    Attributes:
        late: lateness of the last picture by the current schedule, ns.
    """

    def __init__(self, clock: Clock, source: str) -> None:
        self._source = source
        self.late = 0
        self._due = 0  # of the last picture by the schedule before a restart
        self._clock = clock
        self._anchor: tuple[int, int] | None = None  # monotonic ns and pts of the same moment

    def due(self, pts: int | None) -> int:
        """When a picture is due, monotonic ns; now if it has no timestamp. Call it once for each picture, in order."""
        now = self._clock.monotonic_ns()
        if pts is None:
            self._due = now
            return now
        if self._anchor is None:
            self._anchor = (now, pts)
        due = self._anchor[0] + pts - self._anchor[1]
        if due - now > _JUMP_NS:  # a damaged timestamp must not block the recording
            log.warning("timestamps jump ahead: playing on at once", source=self._source, seconds=(due - now) // 10**9)
            self._anchor, due = (now, pts), now
        self._due = due
        if now - due > _MAX_LATE_NS:
            self._anchor, due = (now, pts), now
        self.late = max(0, now - due)
        return due

    @property
    def overdue(self) -> int:
        """Time since the last picture was due, ns."""
        return max(0, self._clock.monotonic_ns() - self._due)


class Lag:
    """How far a live source lags behind its camera.

    lag = (arrival - pts) - its minimum so far. The minimum rises by 1/1000 of elapsed time, so clock drift does not
    accumulate. Where the first picture takes long, because the driver creates decoders one by one, its decode time
    counts as lag: pictures have piled up meanwhile.
    """

    def __init__(self) -> None:
        self._min_delay: int | None = None  # ns
        self._last = 0
        self._first = 0  # decode time up to the first picture with a timestamp, ns

    def of(self, pts: int | None, now: int, decode: int = 0) -> int:
        """Lag of a picture that arrives at `now` (monotonic ns) and took `decode` ns to decode; ns."""
        if self._min_delay is None:
            self._first += decode
        if pts is None:
            return 0
        delay = now - pts
        if self._min_delay is None:
            self._min_delay = delay - (self._first if self._first >= _BACKLOG_NS else 0)
        elif delay - self._min_delay > _JUMP_NS:  # the camera's timeline restarted
            self._min_delay = delay
        else:
            self._min_delay = min(delay, self._min_delay + (now - self._last) // _DRIFT)
        self._last = now
        return delay - self._min_delay


class CameraClock:
    """Capture time of the frames of one connection: by the camera's own clock, if it sends a plausible time.

    RTSP cameras send their clock in RTCP sender reports. Its error cannot be measured here, but it has a bound: no
    frame arrives before it was taken, and the fastest frame takes next to no time. Where the camera's clock is set, the
    fastest frame before says nothing about the frames after: a report then moves the times of pictures against
    their timestamps. So do timestamps that jump, which shows in the delay of all frames.

    Args:
        source: id, for the log.
        fallback: accuracy of the arrival time.
    """

    def __init__(self, source: str, fallback: FrameClock) -> None:
        self._source, self._fallback = source, fallback
        self._min_delay: int | None = None  # of arrival against the camera's clock, ns
        self._recent, self._since = 0, 0  # likewise, of frames that arrived since then, UTC ns
        self._report: int | None = None  # the camera's time less the timestamp, by its last report, ns
        self._clock = fallback
        self._has_warned = False

    def time_of(self, sent_at: int | None, arrived_at: int, pts: int | None = None) -> tuple[int, FrameClock]:
        """`captured_at` of a frame, UTC ns, and its accuracy.

        Args:
            sent_at: by the camera's clock, UTC ns, or None.
            arrived_at: by this machine's clock, UTC ns.
            pts: the frame's timestamp, ns.
        """
        if sent_at is None:
            return arrived_at, self._fallback
        delay = arrived_at - sent_at
        if abs(delay) > _CREDIBLE_NS:
            if not self._has_warned:
                seconds = round(delay / 1e9)
                log.warning("camera's clock is wrong: arrival times are used", source=self._source, behind_s=seconds)
            self._has_warned, self._min_delay = True, None
            return arrived_at, self._fallback
        if self._is_set(sent_at, pts):
            self._min_delay = None
        min_delay = self._fastest(delay, arrived_at)
        if min_delay != self._min_delay:
            self._min_delay = min_delay
            self._clock = FrameClock("ntp", -(-abs(min_delay) // _STEP_NS) * _STEP_NS)
        return sent_at, self._clock

    def _is_set(self, sent_at: int, pts: int | None) -> bool:
        """Whether the camera's clock was set since the last frame."""
        report, before = None if pts is None else sent_at - pts, self._report
        self._report = report
        return report is not None and before is not None and abs(report - before) > _SET_NS

    def _fastest(self, delay: int, arrived_at: int) -> int:
        """The delay of the fastest frame, with this one."""
        if self._min_delay is None:
            self._recent, self._since = delay, arrived_at
            return delay
        self._recent = min(self._recent, delay)
        fastest = min(self._min_delay, delay)
        if arrived_at - self._since >= _WINDOW_NS:
            fastest = self._recent if self._recent > fastest + _JUMPED_NS else fastest
            self._recent, self._since = delay, arrived_at
        return fastest
