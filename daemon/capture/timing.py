"""Time as a source has it: when to try again, which frames to leave out, when a picture is due, when it was taken."""

from __future__ import annotations

import random

import structlog

from daemon.clock import Clock
from daemon.config import ReconnectConfig
from daemon.messages import FrameClock

log = structlog.get_logger(__name__)
_LATE_NS = 500_000_000  # a recording this far behind its own pace starts a new count instead of catching up
_CREDIBLE_NS = 10_000_000_000  # a camera's clock further off than this is wrong, and is not passed on
_JUMP_NS = 60_000_000_000  # between two pictures: neither a lag nor a pause, but another timeline
_PILED_UP_NS = 500_000_000  # less is caught up with
_DRIFT = 1000  # clocks drift apart by less than one in so many
_STEP_NS = 1_000_000  # the error is told in these steps, so that it does not change with every frame


class Backoff:
    """Seconds to wait before each try: exponential, capped, and shortened at random so that cameras of one switch
    do not all come back at once."""

    def __init__(self, config: ReconnectConfig, rng: random.Random | None = None) -> None:
        self._config = config
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._tries = 0

    def next(self) -> float:
        config = self._config
        # The exponent is bounded so that years of tries do not overflow.
        base = min(config.max_s, config.initial_s * config.factor ** min(self._tries, 64))
        self._tries += 1
        return base * (1.0 - config.jitter * self._rng.random())

    def reset(self) -> None:
        self._tries = 0


class RateLimit:
    """Lets through at most `fps` of frames that come with times in ns, evenly; a jump in time starts again."""

    def __init__(self, fps: float) -> None:
        self._period = 1e9 / fps
        self._due: float | None = None

    def allows(self, time_ns: int) -> bool:
        early = 0.0 if self._due is None else self._due - time_ns
        if self._due is None or not -self._period <= early <= 2 * self._period:
            self._due = time_ns + self._period
            return True
        # A quarter of a period early is on time: cameras jitter, and times are rounded.
        if early > self._period / 4:
            return False
        self._due += self._period
        return True


class Pacer:
    """Holds a recording to its own pace by its pictures' times. A jump of over a minute starts a new count.

    Args:
        source: id, for the log.

    Attributes:
        late: ns, by which the last picture came after it was due, by the present count.
    """

    def __init__(self, clock: Clock, source: str) -> None:
        self._source = source
        self.late = 0
        self._due = 0  # of the last picture, before a new count was started for it
        self._clock = clock
        self._anchor: tuple[int, int] | None = None  # monotonic ns and pts of the same moment

    def due(self, pts: int | None) -> int:
        """When a picture is due, monotonic ns; one without a time at once. To be asked once for each, in order."""
        now = self._clock.monotonic_ns()
        if pts is None:
            self._due = now
            return now
        if self._anchor is None:
            self._anchor = (now, pts)
        due = self._anchor[0] + pts - self._anchor[1]
        if due - now > _JUMP_NS:  # one damaged time must not hold the recording for ever
            log.warning("times jump ahead: it is played on at once", source=self._source, seconds=(due - now) // 10**9)
            self._anchor, due = (now, pts), now
        self._due = due
        if now - due > _LATE_NS:
            self._anchor, due = (now, pts), now
        self.late = max(0, now - due)
        return due

    @property
    def behind(self) -> int:
        """ns from when the last picture was due until now."""
        return max(0, self._clock.monotonic_ns() - self._due)


class Lag:
    """How far behind its camera a live source has fallen: by the time between pictures here, and on its own timeline.

    The least difference between the two that was seen is no lag; it is forgotten slowly, because clocks drift apart.
    Where it took long to decode the first picture, because decoders are made one by one, others have piled up since.
    """

    def __init__(self) -> None:
        self._least: int | None = None  # ns
        self._last = 0
        self._first = 0  # ns that it took to decode those before the first with a time, and that one

    def of(self, pts: int | None, now: int, decode: int = 0) -> int:
        """ns, of a picture that is in hand at `now`, monotonic ns, and took so many ns to decode."""
        if self._least is None:
            self._first += decode
        if pts is None:
            return 0
        behind = now - pts
        if self._least is None:
            self._least = behind - (self._first if self._first >= _PILED_UP_NS else 0)
        elif behind - self._least > _JUMP_NS:  # the camera's timeline began again
            self._least = behind
        else:
            self._least = min(behind, self._least + (now - self._last) // _DRIFT)
        self._last = now
        return behind - self._least


class CameraClock:
    """When frames of one connection were taken: by the camera's own clock where it sends that, and it can be believed.

    RTSP cameras say in RTCP sender reports what their clock shows. How far that clock is off cannot be known from here,
    but a bound can be seen: no frame arrives before it was taken, and the fastest of them took next to no time.

    Args:
        source: id, for the log.
        otherwise: what the time is worth without the camera's.
    """

    def __init__(self, source: str, otherwise: FrameClock) -> None:
        self._source, self._otherwise = source, otherwise
        self._least: int | None = None  # ns, the smallest difference between arrival and the camera's time so far
        self._clock = otherwise
        self._told = False

    def time_of(self, sent_at: int | None, arrived_at: int) -> tuple[int, FrameClock]:
        """`captured_at` of a frame, UTC ns, and what it is.

        Args:
            sent_at: by the camera's clock, UTC ns, or None.
            arrived_at: by ours.
        """
        if sent_at is None:
            return arrived_at, self._otherwise
        delay = arrived_at - sent_at
        if abs(delay) > _CREDIBLE_NS:
            if not self._told:
                seconds = round(delay / 1e9)
                log.warning("camera's clock is wrong: times of arrival are used", source=self._source, behind_s=seconds)
            self._told = True
            return arrived_at, self._otherwise
        if self._least is None or delay < self._least:
            self._least = delay
            self._clock = FrameClock("ntp", -(-abs(delay) // _STEP_NS) * _STEP_NS)
        return sent_at, self._clock
