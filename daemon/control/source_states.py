"""The state of each source as it was announced last, with its reason and since when."""

from __future__ import annotations

from dataclasses import dataclass

from daemon.capture.sinks import Announce
from daemon.clock import Clock
from daemon.redact import scrub
from lookout.messages import State, VideoFormat

_WELL = ("up", "ended")


@dataclass(frozen=True)
class SourceState:
    """Attributes:
    since: UTC ns, since when it is up, is not, or has ended.
    reason: why it is not up, or up at less than its full rate; that of before stays while it is tried again.
    retry_ns: monotonic time of the next try; None without one.
    was_down: it has been down or stalled since it was up last.
    """

    state: State
    since: int
    reason: str | None
    retry_ns: int | None
    was_down: bool


class SourceStates:
    """Hears every announcement on its way; any thread may ask."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._states: dict[str, SourceState] = {}

    def of(self, source: str) -> SourceState | None:
        """None before the first announcement."""
        return self._states.get(source)

    def forget(self, source: str) -> None:
        """The source is removed."""
        self._states.pop(source, None)

    def heard_by(self, announce: Announce) -> Announce:
        """Announces, and notes it here. Those of one source come one after the other."""

        def heard(
            source: str,
            session: str | None,
            state: State,
            reason: str | None = None,
            retry_in_s: float | None = None,
            format: VideoFormat | None = None,
        ) -> None:
            self._note(source, state, reason, retry_in_s)
            announce(source, session, state, reason, retry_in_s, format)

        return heard

    def _note(self, source: str, state: State, reason: str | None, retry_in_s: float | None) -> None:
        before = self._states.get(source)
        is_well = state in _WELL
        goes_on = before is not None and (before.state == state or not (is_well or before.state in _WELL))
        was_down = not is_well and (state != "connecting" or (goes_on and before is not None and before.was_down))
        if reason is None and not is_well and goes_on and before is not None:
            reason = before.reason
        self._states[source] = SourceState(
            state,
            before.since if goes_on and before is not None else self._clock.utc_ns(),
            scrub(reason) if reason else None,
            None if retry_in_s is None else self._clock.monotonic_ns() + round(retry_in_s * 1e9),
            was_down,
        )
