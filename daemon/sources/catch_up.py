"""What to leave out undecoded when decoding has fallen behind, so that what is decoded is fresh."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import Any, Final

from av.packet import Packet
from av.video.stream import VideoStream

from daemon.sources.bitstream import Bitstream, head


class CatchUp:
    """First the pictures that no other needs. Where that does not do, because there are none or too few, everything up
    to the next key picture, which needs no other.

    That pictures are late is no reason alone. What a network held back comes in a burst, which is read in no time; and
    where packets must be waited for, nothing has piled up. Behind is who has been late for a while and waited for none.
    """

    SOME: Final = 50_000_000  # ns late
    SOME_AFTER: Final = 200_000_000  # ns without a break, before single pictures are left out
    ALL: Final = 1_000_000_000  # and so late
    ALL_AFTER: Final = 2_000_000_000  # for so long, before all are, up to a key picture
    WAITED: Final = 10_000_000  # ns; less is the interpreter's lock

    def __init__(self, stream: VideoStream, now: Callable[[], int] = monotonic_ns) -> None:
        context = stream.codec_context
        self._bitstream = Bitstream(context.name, context.extradata)
        self._now = now
        self._late_since: int | None = None
        self._very_late_since: int | None = None
        self._to_key = False

    def leaves_out(self, packet: Packet[Any], late: int, waited: int) -> bool:
        """To be asked for each packet once, in order.

        Args:
            late: ns by which the last picture came later than it should.
            waited: ns that it took to get the packet.
        """
        if not late and not self._to_key:  # nearly always
            self._late_since = self._very_late_since = None
            return False
        now = self._now()
        if waited > self.WAITED:
            late = 0
        self._late_since = None if late < self.SOME else self._late_since or now
        self._very_late_since = None if late < self.ALL else self._very_late_since or now
        if packet.size == 0:
            return False
        if self._very_late_since is not None and now - self._very_late_since > self.ALL_AFTER:
            self._to_key = True
        if self._to_key and packet.is_keyframe:
            self._to_key, self._very_late_since = False, None
        if self._to_key:
            return True
        behind = self._late_since is not None and now - self._late_since > self.SOME_AFTER
        return behind and self._bitstream.is_disposable(head(memoryview(packet)))
