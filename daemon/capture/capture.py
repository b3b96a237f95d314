"""The capture of one source: its connection, frame numbers, timestamps and state.

The subclasses `camera.CameraCapture` and `recordings.RecordingCapture` order the steps and wait between them.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import structlog
from av.packet import Packet

from daemon.capture.sinks import DETACHED, UNLIMITED, CaptureSinks, Quota
from daemon.capture.timing import Backoff, CameraClock, RateLimit
from daemon.clock import Bell, Clock
from daemon.config import ReconnectConfig, SourceConfig
from daemon.errors import DecodeError, LoginRefusedError, NoKeyError, PoisonedError, SourceError
from daemon.pipeline.board import Cause
from daemon.pipeline.frames import Frame, FrameInfo
from daemon.sources.port import DecodeBudget, PacketReader, Picture, Reader, Source
from daemon.system.stop import StopToken
from detectors.port import Image
from lookoutd.messages import State, VideoFormat

log = structlog.get_logger(__name__)
T = TypeVar("T")

_MAX_ERRORS = 300  # lost pictures in a row after which a source is reconnected
# In units of monitor.stall_after_s: how long a new connection may take to its first frame, and how long a stalled one
# is left alone before it is replaced.
_STALL_FACTOR = 15
_ADMISSION_NS = 10_000_000_000  # time limit of admission's answer
_BURST_NS = 25_000_000  # less than the lateness at which pictures are skipped
_MAX_BURST = 4  # pictures of a burst that wait on the board for each other
POLL_NS = 100_000_000  # for conditions that also wake the thread

Wait = Iterator[int]
"""Ends when a condition holds. Yields the monotonic time, ns, of the next check; an earlier check is safe."""


class DetachedError(Exception):
    """The library has returned after the capture was replaced or abandoned."""


class _Library:
    """Calls of the source's library, which may never return.

    Attributes:
        lock: the capture's; others hold it to read `is_active`.
        is_active: a call has not returned.
        detached: the source does not belong to this capture any more.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self.lock = lock
        self.is_active = self.detached = False

    def call(self, work: Callable[[], T], discard: Callable[[T], object] | None = None) -> T:
        """Call the library.

        Args:
            discard: takes a result that comes too late.

        Raises:
            DetachedError: another capture has the source.
        """
        self.is_active, result = True, None
        try:
            result = work()
        finally:
            with self.lock:
                self.is_active = False
            if self.detached:
                if discard and result is not None:
                    discard(result)
                raise DetachedError
        return result


class Capture:
    """Captures one source.

    Args:
        seq: number of the first frame; not 0 if another process had the source before.
        settle_s: how long a stopped source waits until its last frame is sent. A source that ends by itself waits
            without limit.

    Attributes:
        wake: wakes the thread that serves the source.
        end: set when the capture has ended.
        wants_gpu: see `SourceConfig`.
        failure: why a recording was not played to its end, None if it was.
        format: of the connection, None if there is none.
    """

    # Slots: beyond 30 attributes each instance has a dictionary of its own, and those of 150 captures leave the cache.
    __slots__ = (
        "_backoff", "_bell", "_budget", "_burst", "_burst_ns", "_camera_clock", "_clock", "_decode_ns", "_drop_cause",
        "_errors", "_first_seq", "_has_delivered", "_held_ns", "_is_asked_for", "_is_waiting", "_last_error",
        "_last_error_ns",
        "_last_ns", "_library", "_lock", "_max_fps", "_new_quota", "_pending", "_quota", "_rate_limit", "_seq",
        "_session", "_settle_ns", "_sinks", "_source", "_state", "_stop", "_tapped", "config", "end", "failure",
        "format", "id", "wake", "wants_gpu",
    )  # fmt: skip

    def __init__(
        self,
        config: SourceConfig,
        source: Source,
        sinks: CaptureSinks,
        clock: Clock,
        reconnect: ReconnectConfig,
        seq: int = 0,
        settle_s: float = 2.0,
    ) -> None:
        self.id, self.config, self.wants_gpu = config.id, config, config.wants_gpu
        self._bell = Bell()
        self.wake: Callable[[], None] = self._bell.ring
        self.end = StopToken()
        self.failure: str | None = None
        self.format: VideoFormat | None = None
        self._source, self._sinks, self._clock = source, sinks, clock
        self._backoff = Backoff(reconnect)
        self._max_fps = config.max_fps
        self._budget = DecodeBudget()
        self._quota = UNLIMITED  # in use
        self._new_quota = UNLIMITED  # set by any thread
        self._rate_limit = RateLimit(config.max_fps) if config.max_fps else None
        self._stop, self._settle_ns = StopToken(), round(settle_s * 1e9)
        self._drop_cause: Cause = "shutdown"
        self._seq = self._first_seq = seq
        self._session: str | None = None
        self._camera_clock = CameraClock(self.id, source.clock)
        # Guards the state, and the frames when another capture takes the source.
        self._lock = threading.Lock()
        self._state: State = "connecting"
        self._last_ns = clock.monotonic_ns()
        self._last_error: DecodeError | None = None  # of the last picture, None after a good one
        self._last_error_ns = self._last_ns
        self._errors = 0  # pictures lost in a row
        self._library = _Library(self._lock)
        self._tapped: PacketReader | None = None  # the reader, if its source has packets
        self._pending: Frame | None = None  # waits for room on the board
        self._has_delivered = False  # this connection has given a picture
        self._is_asked_for = False  # the next connection
        self._is_waiting = False  # for the board or a due time: the source is not stalled
        self._decode_ns = 0  # of the last picture
        self._burst_ns = self._held_ns = 0  # longest burst; see `FrameBoard.put`
        self._burst = (0, 0)  # capture time of a burst's last picture, and their number

    @property
    def state(self) -> State:
        return self._state

    @property
    def seq(self) -> int:
        """Number of the next frame."""
        return self._seq

    @property
    def ended(self) -> bool:
        """Whether the capture has ended."""
        return self.end.is_set

    def listen(self) -> None:
        """Let the board wake this capture. Call it once `wake` is set, before the thread starts."""
        self._sinks.board.listen(self.id, self.wake)

    def stop(self, drop_cause: Cause = "shutdown") -> None:
        """Ask the capture to end; a frame that waits for room is then dropped for this cause."""
        self._drop_cause = drop_cause
        self._stop.set()

    def detach(self) -> int | None:
        """Give up the source, because the library blocks, so that another capture can take it.

        Returns:
            The number of the other's first frame; None if the library has returned.
        """
        with self._lock:
            if not self._library.is_active or self._stop.is_set or self._library.detached:
                return None
            self._announce_locked("down", f"left behind: it was blocked while {self._activity}", 0.0)
            self._detach_locked()
            return self._seq

    def retry(self) -> None:
        """Connect at once, if the source is down; any thread may call it."""
        self._is_asked_for = True
        self.wake()

    def request_end(self) -> None:
        """See `daemon.capture.host.HostedCapture`, which this implements."""
        self.stop("removed")
        self.wake()

    def leave_behind(self, *, stopping: bool) -> None:
        self.abandon("stopped" if stopping else None)

    def cancel(self) -> None:
        self.abandon("stopped")

    def abandon(self, reason: str | None = None) -> None:
        """End a stopped capture whose library blocks."""
        with self._lock:
            self._announce_locked("ended", reason or f"left behind: it is blocked while {self._activity}")
            self._detach_locked()

    def count_from(self, seq: int) -> None:
        """Set the number of the first frame; before the start."""
        self._seq = self._first_seq = seq

    def _tap_locked(self, reader: PacketReader) -> None:
        id, packets, session = self.id, self._sinks.packets, self._session or ""

        def put(packet: Packet[Any]) -> None:
            if packets.is_watched(id) and packet.size:
                packets.put_packet(id, session, reader.describe(packet), bytes(packet))

        self._tapped, reader.tap = reader, put

    def _detach_locked(self) -> None:
        self._stop.set()
        if self._tapped:
            self._tapped.tap = None
            self._tapped = None
        self._library.detached = True
        if self._pending:
            self._sinks.ledger.dropped(self.id, self._pending.info.seq, self._drop_cause)
            self._pending = None
        self._sinks.admission.release(self.id)
        self._sinks = DETACHED
        self._state = "ended"
        self.end.set()

    @property
    def _activity(self) -> str:
        return "reading" if self.format else "connecting"

    # --- one connection, step by step --------------------------------------------------------------------------------

    def _begin_connection(self) -> None:
        self._session = secrets.token_hex(4)
        self._camera_clock = CameraClock(self.id, self._source.clock)
        self._has_delivered, self._last_error, self._errors = False, None, 0
        self._is_asked_for = False
        self._budget.late = 0
        self._announce("connecting")

    def _open(self) -> Reader:
        return self._library.call(partial(self._source.open, self._budget), lambda reader: reader.close())

    def _request_admission(self, reader: Reader) -> Future[None]:
        """Ask for the source's quota, which may change at any time."""
        rates = [fps for fps in (reader.format.fps, self._max_fps) if fps]
        with self._lock:  # another capture may take the source next
            return self._sinks.admission.admit(self.id, min(rates, default=None), self._set_quota, reader.format)

    def _until_admitted(self, answer: Future[None]) -> Wait:
        """Until admission has answered, or the capture is stopped.

        Raises:
            SourceError: admission does not answer.
        """
        if answer.done():
            return
        answer.add_done_callback(lambda _: self.wake())
        until = self._clock.monotonic_ns() + _ADMISSION_NS
        while not (answer.done() or self._stop.is_set):
            if self._clock.monotonic_ns() >= until:
                raise SourceError("admission does not answer")
            yield self._clock.monotonic_ns() + POLL_NS

    def _is_admitted(self, reader: Reader, answer: Future[None]) -> bool:
        """Whether the source is admitted; False if the capture was stopped before the answer.

        Raises:
            SourceError: admission refuses the source.
        """
        if not answer.done():
            return False
        answer.result()
        self.format = reader.format
        if isinstance(reader, PacketReader):
            with self._lock:
                if not self._library.detached:
                    self._tap_locked(reader)
        self._burst_ns = min(_BURST_NS, round(0.5e9 / (reader.format.fps or 1.0)))
        self._apply_quota()
        return True

    def _until_readmitted(self, reader: Reader) -> Wait:
        """Until admission has answered for the format that the source has now, which is then announced.

        Raises:
            SourceError: admission refuses the source, or does not answer.
        """
        answer = self._request_admission(reader)
        yield from self._until_admitted(answer)
        if self._is_admitted(reader, answer) and self._state == "up":
            self._announce("up", self._quota.reason, format=reader.format)

    def _process(self, reader: Reader, picture: Picture) -> bool:
        """Load a picture and put it on the board; False if the board has no room.

        Raises:
            DecodeError: the picture cannot be loaded.
        """
        self._count_passed_over()
        image = self._load(picture)
        self._errors, self._last_error = 0, None
        late, lateness = self._lateness(picture)
        self._budget.late = late if self._sinks.board.live else 0  # 0: nothing is skipped
        has_changed = reader.format is not self.format
        self.format = reader.format
        if (self._new_quota is not self._quota and self._apply_quota()) or self._state != "up" or has_changed:
            self._backoff.reset()
            self._has_delivered = True
            self._announce("up", self._quota.reason, format=reader.format)
        return image is None or self._deliver(picture, image, lateness)

    def _lateness(self, picture: Picture) -> tuple[int, int]:
        """Lateness of the source now, and of this picture when it was captured; ns."""
        raise NotImplementedError

    def _end_connection(self) -> None:
        self._count_passed_over()
        self.format = None
        with self._lock:  # see `_request_admission`
            self._tapped = None
            self._sinks.admission.release(self.id)
        self._new_quota = UNLIMITED

    def _retry_in(self, error: Exception | None) -> float | None:
        """Seconds until the next connection, None if there is to be none.

        Args:
            error: what ended the last connection; None at the end of a recording.

        Raises:
            DetachedError, PoisonedError: not the source's fault.
        """
        if error is None and (not self._source.has_next or self._stop.is_set):
            return None
        if error is None and self._has_delivered:
            return 0.0
        reason = "a recording without a picture" if error is None else self._reason_of(error)
        if self._source.has_next:
            self.failure = reason = f"passed over: {reason}"
        elif self._source.plays_once and self._seq > self._first_seq:
            # Part of it was published: a restart would publish the same frames twice.
            self.failure = reason
            return None
        delay = self._backoff.next(refused=isinstance(error, LoginRefusedError))
        self._announce("down", reason, delay)
        return delay

    def _reason_of(self, error: Exception) -> str:
        if isinstance(error, SourceError):
            return str(error)
        if isinstance(error, (DetachedError, PoisonedError)):
            raise error
        if getattr(error, "sticky", False):  # from a call that should not touch the GPU
            raise PoisonedError(str(error)) from error
        log.error("source failed unexpectedly", source=self.id, exc_info=error)
        return f"unexpected {type(error).__name__}: see the log"

    def _until_settled(self) -> Wait:
        """Until the last frame is sent: `ended` must come after it."""
        asked, self._is_waiting = None, True
        while not self._sinks.board.is_settled(self.id):
            now = self._clock.monotonic_ns()
            if self._stop.is_set:
                asked = asked or now
                if now - asked >= self._settle_ns:
                    return
            yield now + POLL_NS

    def _until_room(self) -> Wait:
        """Until the pending frame is on the board, or dropped."""
        self._is_waiting = True
        while not self._put_pending():
            yield self._clock.monotonic_ns() + (self._held_ns or POLL_NS)
        self._is_waiting, self._last_ns = False, self._clock.monotonic_ns()

    def _until_retry(self, delay: float) -> Wait:
        """Until the next connection is due, in seconds, or asked for."""
        due = self._clock.monotonic_ns() + round(delay * 1e9)
        while not (self._stop.is_set or self._is_asked_for) and self._clock.monotonic_ns() < due:
            yield due

    def _until_due(self, due: int) -> Wait:
        """Until a picture is due."""
        self._is_waiting = True
        while (now := self._clock.monotonic_ns()) < due and not self._stop.is_set:
            yield due
        self._is_waiting, self._last_ns = False, now

    def _announce_ended(self) -> None:
        self._announce("ended", self.failure or ("stopped" if self._stop.is_set else None))

    def _set_quota(self, quota: Quota) -> None:
        self._new_quota = quota

    def _apply_quota(self) -> bool:
        """Apply the newest quota; returns whether it has changed."""
        changed = self._quota != self._new_quota
        self._quota = self._new_quota
        self._budget.skip_ratio = self._quota.skip_ratio
        if changed:
            rates = [fps for fps in (self._max_fps, self._quota.fps) if fps]
            self._rate_limit = RateLimit(min(rates)) if rates else None
        return changed

    def check_stalled(self, after_s: float) -> bool:
        """Called by the monitor: report a connected source that has sent nothing for a while as stalled.

        Returns:
            Whether it has stalled for so long that its library will not return. Before its first picture a source may
            wait for the driver to create other sources' decoders.
        """
        with self._lock:
            now = self._clock.monotonic_ns()
            waited = (now - self._last_ns) / 1e9
            if self._state == "stalled":
                blocked = (now - max(self._last_ns, self._last_error_ns)) / 1e9  # a lost picture was read, too
                limit = max(_STALL_FACTOR * after_s, 2 * self.config.read_limit_s)
                return self._has_delivered and self._source.live and blocked > limit
            if self._state == "up" and not self._is_waiting and waited > after_s:
                reason = f": {self._last_error}" if self._last_error else ""
                self._announce_locked("stalled", f"no frame for {waited:.1f} s{reason}")
            elif self._state == "connecting" and waited > after_s and isinstance(self._last_error, NoKeyError):
                self._announce_locked("stalled", f"no picture in {waited:.0f} s: {self._last_error}")
            elif self._state == "connecting" and waited > _STALL_FACTOR * after_s:
                reason = str(self._last_error or f"it is blocked while {self._activity}")
                self._announce_locked("stalled", f"no picture in {waited:.0f} s: {reason}")
        return False

    def _load(self, picture: Picture) -> Image | None:
        """The picture in the form that lanes accept; None if the rate limit drops it."""
        now = self._clock.monotonic_ns()
        if self._rate_limit and not self._rate_limit.allows(now if picture.pts is None else picture.pts):
            self._count_dropped("rate_limit")
            self._last_ns = now
            return None
        image = self._library.call(picture.load)
        self._last_ns = self._clock.monotonic_ns()
        self._decode_ns = picture.decode + self._last_ns - now
        return image

    def _deliver(self, picture: Picture, image: Image, lateness: int) -> bool:
        """Count a picture that was just loaded as captured, and put it on the board; False if the board has no room."""
        with self._lock:
            if self._library.detached:
                raise DetachedError
            self._sinks.ledger.captured(self.id)
            captured_at, clock = self._camera_clock.time_of(picture.sent_at, self._clock.utc_ns(), picture.pts)
            info = FrameInfo(
                source=self.id,
                session=self._session or "",
                seq=self._seq,
                pts=picture.pts,
                captured_ns=self._last_ns,
                captured_at=captured_at,
                clock=clock,
                decode=self._decode_ns,
                width=image.width,
                height=image.height,
                lateness=lateness,
                pixel_aspect=self.format.pixel_aspect if self.format else 1.0,
                corrupt=image.corrupt,
            )
            self._seq += 1
            self._held_ns = self._hold_ns(self._last_ns) if picture.in_burst else 0
            frame = Frame(info, image)
            if self._sinks.board.put(frame, hold_ns=self._held_ns):
                return True
            self._pending = frame
            return False

    def _hold_ns(self, now: int) -> int:
        """How long a picture waits on the board for the previous one of its burst."""
        last, count = self._burst
        count = count + 1 if now - last < self._burst_ns else 1
        self._burst = now, count
        return self._burst_ns if count <= _MAX_BURST else 0

    def _put_pending(self) -> bool:
        """Put the pending frame on the board, or drop it; False if there is no room yet."""
        with self._lock:
            if self._library.detached or self._pending is None:
                raise DetachedError
            frame, self._pending = self._pending, None  # the board counts a frame that it refuses for good
            give_up = self._drop_cause if self._stop.is_set else None
            if not self._sinks.board.put(frame, give_up=give_up, hold_ns=self._held_ns):
                self._pending = frame
                return False
            return True

    def _check_delivered(self) -> None:
        """Raise if a recording ends with nothing but errors."""
        if self._last_error is not None and not self._has_delivered:
            raise SourceError(f"no picture of {self._errors} could be decoded; the last: {self._last_error}")

    def _on_decode_error(self, error: DecodeError) -> None:
        self._errors += not error.awaits_key
        self._last_error, self._last_error_ns = error, self._clock.monotonic_ns()
        log.debug("picture lost", source=self.id, reason=str(error))
        self._count_dropped(error.cause)
        if not self._source.plays_once and self._errors >= _MAX_ERRORS:
            raise SourceError(f"{self._errors} pictures in a row could not be decoded; the last: {error}")

    def _count_dropped(self, cause: str) -> None:
        """Count a picture as captured and dropped."""
        with self._lock:
            if not self._library.detached:
                self._sinks.ledger.captured(self.id)
                self._sinks.ledger.dropped(self.id, self._seq, cause)
                self._seq += 1

    def _count_passed_over(self) -> None:
        """Count the packets that the reader has passed over since the last call."""
        if self._tapped and (counts := self._tapped.take_passed_over()):
            with self._lock:
                self._sinks.ledger.passed_over(self.id, counts)

    def _announce(
        self,
        state: State,
        reason: str | None = None,
        retry_in_s: float | None = None,
        format: VideoFormat | None = None,
    ) -> None:
        with self._lock:
            self._announce_locked(state, reason, retry_in_s, format)

    def _announce_locked(
        self,
        state: State,
        reason: str | None = None,
        retry_in_s: float | None = None,
        format: VideoFormat | None = None,
    ) -> None:
        """Requires the lock, so that states are announced in order; nothing follows `ended`."""
        if self._state == "ended":
            return
        self._state = state
        self._last_ns = self._clock.monotonic_ns()
        self._sinks.announce(self.id, self._session, state, reason, retry_in_s, format)
        if state == "ended":
            self.end.set()
