"""Whether packets come late, by their own times: what waited during a stall is old when it comes."""

from __future__ import annotations

_STALL_NS = 1_000_000_000  # a shorter one is how networks are
_FORGET_NS = 30_000_000_000  # after a stall: a camera may have stopped its clock with it


class Lateness:
    """Of one stream. A camera whose clock runs at another rate is not late: stalls alone count."""

    def __init__(self) -> None:
        self._time = self._at = 0  # of the newest packet: its own time, and when it came, ns
        self._begun = False
        self._late = 0
        self._stalled_at = 0

    def add(self, time_ns: int, now_ns: int) -> int:
        """How long ago a packet that comes now could have come, ns.

        Args:
            time_ns: of decoding, or else of showing.
        """
        if not self._begun or time_ns < self._time - _STALL_NS:  # another timeline
            self._begun, self._late = True, 0
        else:
            time_ns = max(time_ns, self._time)
            behind = (now_ns - self._at) - (time_ns - self._time)
            if behind <= _STALL_NS and not self._late:  # as nearly always
                self._time, self._at = time_ns, now_ns
                return 0
            if behind > _STALL_NS:
                self._late, self._stalled_at = self._late + behind, now_ns
            else:
                self._late = max(0, self._late + min(0, behind))
            if now_ns - self._stalled_at > _FORGET_NS:
                self._late = 0
        self._time, self._at = time_ns, now_ns
        return self._late
