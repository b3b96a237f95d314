"""The way of a source's pictures to the board: their numbers, and the one that waits for room."""

from __future__ import annotations

from collections.abc import Mapping

from daemon.capture.library import DetachedError, LibraryCalls
from daemon.capture.sinks import DETACHED, Board, FrameCounters
from daemon.capture.timing import CameraClock
from daemon.clock import Clock
from daemon.pipeline.drop_causes import GiveUp
from daemon.pipeline.frames import Frame, FrameInfo
from daemon.sources.port import Picture
from detectors.port import Image
from lookout.messages import FrameClock

_BURST_NS = 25_000_000  # less than the lateness at which pictures are skipped
_MAX_BURST = 4  # pictures of a burst that wait on the board for each other


class Delivery:
    """`deliver`, `put_pending`, `drop`, `pass_over` and `detach` require the capture's lock: another thread detaches.

    Args:
        library: tells whether another capture has the source.

    Attributes:
        seq: number of the next frame.
        first_seq: of the first one; not 0 if another process had the source before.
        held_ns: how long the last picture waits on the board; see `FrameBoard.put`.
    """

    def __init__(self, source: str, board: Board, ledger: FrameCounters, library: LibraryCalls, clock: Clock) -> None:
        self._source, self._library, self._clock = source, library, clock
        self._board, self._ledger = board, ledger
        self.seq = self.first_seq = self.held_ns = 0
        self._give_up: GiveUp = "shutdown"
        self._session = ""
        self._camera_clock = CameraClock(source, FrameClock("arrival"))  # until a connection begins
        self._pending: Frame | None = None  # waits for room on the board
        self._burst_ns = 0  # length of the longest burst
        self._burst = (0, 0)  # capture time of a burst's last picture, and their number

    def begin(self, session: str, clock: FrameClock) -> None:
        """A connection begins.

        Args:
            clock: accuracy of the capture time where pictures have no time of their own.
        """
        self._session, self._camera_clock = session, CameraClock(self._source, clock)

    def set_rate(self, fps: float | None) -> None:
        """The rate of the connection, if it is known."""
        self._burst_ns = min(_BURST_NS, round(0.5e9 / (fps or 1.0)))

    def count_from(self, seq: int) -> None:
        """Set the number of the first frame; before the start."""
        self.seq = self.first_seq = seq

    def deliver(
        self, picture: Picture, image: Image, *, captured_ns: int, decode_ns: int, lateness: int, pixel_aspect: float
    ) -> bool:
        """Count a picture that was just loaded as captured, and put it on the board; False if the board has no room.

        Raises:
            DetachedError: another capture has the source.
        """
        if self._library.is_detached:
            raise DetachedError
        self._ledger.captured(self._source)
        captured_at, clock = self._camera_clock.time_of(picture.sent_at, self._clock.utc_ns(), picture.pts)
        info = FrameInfo(
            source=self._source,
            session=self._session,
            seq=self.seq,
            pts=picture.pts,
            captured_ns=captured_ns,
            captured_at=captured_at,
            clock=clock,
            decode=decode_ns,
            width=image.width,
            height=image.height,
            lateness=lateness,
            pixel_aspect=pixel_aspect,
            corrupt=image.corrupt,
        )
        self.seq += 1
        self.held_ns = self._hold_ns(captured_ns) if picture.in_burst else 0
        frame = Frame(info, image)
        if self._board.put(frame, hold_ns=self.held_ns):
            return True
        self._pending = frame
        return False

    def put_pending(self, *, stopped: bool) -> bool:
        """Put the pending frame on the board, or drop it; False if there is no room yet.

        Args:
            stopped: it is dropped if there is no room.

        Raises:
            DetachedError: another capture has the source.
        """
        if self._library.is_detached or self._pending is None:
            raise DetachedError
        frame, self._pending = self._pending, None  # the board counts a frame that it refuses for good
        if self._board.put(frame, give_up=self._give_up if stopped else None, hold_ns=self.held_ns):
            return True
        self._pending = frame
        return False

    def give_up_as(self, cause: GiveUp) -> None:
        """The cause of the drop of a frame that waits for room when the capture stops."""
        self._give_up = cause

    def drop(self, cause: str) -> None:
        """Count a picture as captured and dropped."""
        if not self._library.is_detached:
            self._ledger.captured(self._source)
            self._ledger.dropped(self._source, self.seq, cause)
            self.seq += 1

    def pass_over(self, counts: Mapping[str, int]) -> None:
        """Count packets that are no frames, by kind."""
        self._ledger.passed_over(self._source, counts)

    def detach(self) -> None:
        """Another capture has the source."""
        if self._pending:
            self._ledger.dropped(self._source, self._pending.info.seq, self._give_up)
            self._pending = None
        self._board, self._ledger = DETACHED.board, DETACHED.ledger

    def _hold_ns(self, now: int) -> int:
        """How long a picture waits on the board for the previous one of its burst."""
        last, count = self._burst
        count = count + 1 if now - last < self._burst_ns else 1
        self._burst = now, count
        return self._burst_ns if count <= _MAX_BURST else 0
