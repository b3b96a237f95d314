"""The condition of a source: its state as announced, its errors, and since when nothing has come from it."""

from __future__ import annotations

import secrets
import threading

import structlog

from daemon.capture.sinks import DETACHED, Announce
from daemon.clock import Clock
from daemon.config.sources import SourceConfig
from daemon.errors import DecodeError, NoKeyError
from lookout.messages import State, VideoFormat

log = structlog.get_logger(__name__)
# In units of monitor.stall_after_s: how long a new connection may take to its first frame, and how long a stalled one
# is left alone before it is replaced.
_STALL_FACTOR = 15


class SourceCondition:
    """
    Args:
        lock: the capture's. It guards the state, so that states are announced in order.

    Attributes:
        state: as announced last.
        session: of the connection, None before the first.
        last_error: of the last picture, None after a good one.
        errors: pictures lost in a row.
        has_delivered: this connection has given a picture.
        heard_ns: monotonic time of the last picture or announcement.
    """

    def __init__(self, config: SourceConfig, announce: Announce, clock: Clock, lock: threading.Lock) -> None:
        self._config, self._publish, self._clock, self._lock = config, announce, clock, lock
        self.state: State = "connecting"
        self.session: str | None = None
        self.last_error: DecodeError | None = None
        self.errors = 0
        self.has_delivered = False
        self._is_waiting = False  # for the board or a due time: the source is not stalled
        self.heard_ns = self._error_ns = clock.monotonic_ns()

    def begin(self) -> None:
        """A connection begins."""
        self.session = secrets.token_hex(4)
        self.has_delivered, self.last_error, self.errors = False, None, 0
        self.announce("connecting")

    def wait(self) -> None:
        """The capture waits, not the source."""
        self._is_waiting = True

    def go_on(self, now: int) -> None:
        """The capture does not wait any more."""
        self._is_waiting, self.heard_ns = False, now

    def note_picture(self, now: int) -> None:
        """The source has given a picture: it was loaded, or is not needed."""
        self.heard_ns, self.errors, self.last_error = now, 0, None

    def note_lost(self, error: DecodeError) -> None:
        """A picture could not be decoded."""
        self.errors += not error.awaits_key
        self.last_error, self._error_ns = error, self._clock.monotonic_ns()
        log.debug("picture lost", source=self._config.id, reason=str(error))

    def announce_up(self, reason: str | None, format: VideoFormat) -> None:
        """A connection gives pictures, or gives others than before."""
        self.has_delivered = True
        self.announce("up", reason, format=format)

    def announce(
        self,
        state: State,
        reason: str | None = None,
        retry_in_s: float | None = None,
        format: VideoFormat | None = None,
    ) -> None:
        with self._lock:
            self.announce_locked(state, reason, retry_in_s, format)

    def announce_locked(
        self,
        state: State,
        reason: str | None = None,
        retry_in_s: float | None = None,
        format: VideoFormat | None = None,
    ) -> None:
        """See `announce`; requires the lock. Nothing follows `ended`."""
        if self.state == "ended":
            return
        self.state = state
        self.heard_ns = self._clock.monotonic_ns()
        self._publish(self._config.id, self.session, state, reason, retry_in_s, format)

    def detach(self) -> None:
        """Announce nothing more. Requires the lock."""
        self._publish, self.state = DETACHED.announce, "ended"

    def check_stalled(self, after_s: float, activity: str, *, live: bool) -> bool:
        """Announce a source that has sent nothing for a while as stalled. Requires the lock.

        Args:
            activity: what its library does.
            live: the source is.

        Returns:
            Whether it has stalled for so long that its library will not return. Before its first picture a source may
            wait for the driver to create other sources' decoders.
        """
        now = self._clock.monotonic_ns()
        silent = (now - self.heard_ns) / 1e9
        if self.state == "stalled":
            blocked = (now - max(self.heard_ns, self._error_ns)) / 1e9  # a lost picture was read, too
            limit = max(_STALL_FACTOR * after_s, 2 * self._config.read_limit_s)
            return self.has_delivered and live and blocked > limit
        if self.state == "up" and not self._is_waiting and silent > after_s:
            reason = f": {self.last_error}" if self.last_error else ""
            self.announce_locked("stalled", f"no frame for {silent:.1f} s{reason}")
        elif self.state == "connecting" and silent > after_s and isinstance(self.last_error, NoKeyError):
            self.announce_locked("stalled", f"no picture in {silent:.0f} s: {self.last_error}")
        elif self.state == "connecting" and silent > _STALL_FACTOR * after_s:
            reason = str(self.last_error or f"it is blocked while {activity}")
            self.announce_locked("stalled", f"no picture in {silent:.0f} s: {reason}")
        return False
