"""One source: its connection, its frames' numbers and times, its state; where a library does not return, its end.

`camera.CameraCapture` and `recordings.RecordingCapture` say in which order these steps are taken, and who waits.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import structlog

from daemon.capture.sinks import DETACHED, UNLIMITED, CaptureSinks, Quota
from daemon.capture.timing import Backoff, CameraClock, RateLimit
from daemon.clock import Bell, Clock
from daemon.config import ReconnectConfig, SourceConfig
from daemon.errors import DecodeError, PoisonedError, SourceError
from daemon.messages import State, VideoFormat
from daemon.pipeline.board import Cause
from daemon.pipeline.frames import Frame, FrameInfo
from daemon.sources.port import DecodeBudget, Picture, Reader, Skipped, Source
from daemon.system.stop import Stop
from detectors.port import Image

log = structlog.get_logger(__name__)

_MOST_ERRORS = 300  # pictures in a row that a source may fail to give before it is connected anew
# In units of monitor.stall_after_s: how long a new connection may take to its first frame, and how long a stalled one
# is left alone before it is replaced.
_LONG = 15
_ADMISSION_NS = 10_000_000_000  # for the answer whether the source may give frames
_BURST_NS = 25_000_000  # less than what is taken for falling behind
_MOST_IN_BURST = 4  # pictures; of more the newest is wanted
LOOK_AGAIN_NS = 100_000_000  # for a condition whose coming also wakes the thread

Wait = Iterator[int]
"""Ends when the condition holds. Each item is a monotonic time, ns, at which to look again; looking earlier is safe."""


class DisownedError(Exception):
    """The library has returned, and another capture has the source by now."""


class _InLibrary:
    """Within, its thread is in a library, which may not return.

    Attributes:
        lock: of the capture; others look at `now` with it held.
        disowned: the capture's frames and words are nobody's any more.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self.lock = lock
        self.now = self.disowned = False

    def __enter__(self) -> None:
        self.now = True

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.now = False
            if self.disowned:
                raise DisownedError


class Capture:
    """Owns one source.

    Args:
        seq: number of its first frame; not 0 where another process had the source before.
        settle_s: how long a source that was asked to end waits for its last frame to be on its way. One that ends by
            itself waits for as long as that takes.

    Attributes:
        config: of the source.
        wake: tells the thread that serves it to go on.
        end: set when nothing more comes of it.
        asks_gpu: as in its configuration.
        failure: why a recording could not be played to its end, None if it could.
        format: of the connection, None where there is none.
    """

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
        self.id, self.config, self.asks_gpu = config.id, config, config.asks_gpu
        self._bell = Bell()
        self.wake: Callable[[], None] = self._bell.ring
        self.end = Stop()
        self.failure: str | None = None
        self.format: VideoFormat | None = None
        self._source, self._to, self._clock = source, sinks, clock
        self._backoff = Backoff(reconnect)
        self._max_fps = config.max_fps
        self._budget = DecodeBudget()
        self._quota = UNLIMITED  # the share of the detector that it gets
        self._new_quota = UNLIMITED  # the same, as any thread has last set it
        self._limit = RateLimit(config.max_fps) if config.max_fps else None
        self._stop, self._settle_ns = Stop(), round(settle_s * 1e9)
        self._gives_up: Cause = "shutdown"
        self._seq = self._first_seq = seq
        self._session: str | None = None
        self._camera_clock = CameraClock(self.id, source.clock)
        # For the state, and for whoever takes the source from this capture: frames change hands with it held.
        self._lock = threading.Lock()
        self._state: State = "connecting"
        self._last_ns = clock.monotonic_ns()
        self._lost: DecodeError | None = None  # the last picture, since one could be decoded
        self._lost_ns = self._last_ns  # when a picture was lost last
        self._errors = 0  # pictures lost in a row
        self._in_library = _InLibrary(self._lock)
        self._waiting: Frame | None = None  # for room on the board
        self._gave = False  # this connection, a picture
        self._held = False  # waiting for room on the board or for a picture's time: not the source's fault
        self._decode = 0  # ns, of the picture loaded last
        self._burst_ns = self._held_ns = 0  # within which pictures belong together; see `FrameBoard.put`
        self._burst = (0, 0)  # when the last picture of one was captured, and how many there were

    @property
    def state(self) -> State:
        return self._state

    @property
    def seq(self) -> int:
        """Number of its next frame."""
        return self._seq

    @property
    def ended(self) -> bool:
        """Nothing more comes of it."""
        return self.end.is_set

    def listen(self) -> None:
        """Have the board wake its thread; to be called when there is one, before it starts."""
        self._to.board.listen(self.id, self.wake)

    def stop(self, gives_up: Cause = "shutdown") -> None:
        """Ask it to end, the next time it goes on; a frame that waits for room then is dropped for this cause."""
        self._gives_up = gives_up
        self._stop.set()

    def detach(self) -> int | None:
        """Its library does not return: it ends, should it ever, and another may go on under its name.

        Returns:
            the number of that one's first frame; None if it is at work again.
        """
        with self._lock:
            if not self._in_library.now or self._stop.is_set or self._in_library.disowned:
                return None
            self._say_locked("down", f"left behind: it was blocked while {self._doing}", 0.0)
            self._disown_locked()
            return self._seq

    def abandon(self, reason: str | None = None) -> None:
        """It was asked to end, and its library does not return; should it ever, nobody is to notice."""
        with self._lock:
            self._say_locked("ended", reason or f"left behind: it is blocked while {self._doing}")
            self._disown_locked()

    def count_from(self, seq: int) -> None:
        """Number its frames from there; before it begins."""
        self._seq = self._first_seq = seq

    def _disown_locked(self) -> None:
        self._stop.set()
        self._in_library.disowned = True
        if self._waiting:
            self._to.ledger.dropped(self.id, self._waiting.info.seq, self._gives_up)
            self._waiting = None
        self._to.admission.release(self.id)
        self._to = DETACHED
        self._state = "ended"
        self.end.set()

    @property
    def _doing(self) -> str:
        return "reading" if self.format else "connecting"

    # --- one connection, step by step --------------------------------------------------------------------------------

    def _begin_connection(self) -> None:
        self._session = secrets.token_hex(4)
        self._camera_clock = CameraClock(self.id, self._source.clock)
        self._gave, self._lost, self._errors = False, None, 0
        self._budget.late = 0
        self._say("connecting")

    def _open(self) -> Reader:
        reader: Reader | None = None
        try:
            with self._in_library:
                reader = self._source.open(self._budget)
        except DisownedError:  # another capture has the source by now
            if reader is not None:
                reader.close()
            raise
        return reader

    def _ask_admission(self, reader: Reader) -> Future[None]:
        """Ask for the source's share of the detector, which may change at any time."""
        rates = [fps for fps in (reader.format.fps, self._max_fps) if fps]
        with self._lock:  # its name may be another's in the next moment
            return self._to.admission.admit(self.id, min(rates, default=None), self._set_quota, reader.format)

    def _until_answered(self, answer: Future[None]) -> Wait:
        """Until admission has answered, or the source is to end.

        Raises:
            SourceError: there is no answer.
        """
        if answer.done():
            return
        answer.add_done_callback(lambda _: self.wake())
        until = self._clock.monotonic_ns() + _ADMISSION_NS
        while not (answer.done() or self._stop.is_set):
            if self._clock.monotonic_ns() >= until:
                raise SourceError("admission does not answer")
            yield self._clock.monotonic_ns() + LOOK_AGAIN_NS

    def _let_in(self, reader: Reader, answer: Future[None]) -> bool:
        """Whether the source may give frames now; it may not where it is to end before admission has answered.

        Raises:
            SourceError: it is refused.
        """
        if not answer.done():
            return False
        answer.result()
        self.format = reader.format
        self._burst_ns = min(_BURST_NS, round(0.5e9 / (reader.format.fps or 1.0)))
        self._apply_quota()
        return True

    def _read(self, reader: Reader) -> Picture | Skipped | None:
        with self._in_library:
            return reader.read()

    def _take_in(self, reader: Reader, picture: Picture) -> bool:
        """Load a picture and leave it on the board; False if it waits for room there.

        Raises:
            DecodeError: it cannot be loaded.
        """
        image = self._load(picture)
        self._errors, self._lost = 0, None
        late, behind = self._lateness(picture)
        self._budget.late = late if self._to.board.live else 0  # 0: no picture is left out for it
        if (self._new_quota is not self._quota and self._apply_quota()) or self._state != "up":
            self._backoff.reset()
            self._gave = True
            self._say("up", self._quota.reason, format=reader.format)
        return image is None or self._deliver(picture, image, behind)

    def _lateness(self, picture: Picture) -> tuple[int, int]:
        """How late the source is now, and by how much this picture came after it was due; ns."""
        raise NotImplementedError

    def _end_connection(self) -> None:
        self.format = None
        with self._lock:  # as where it enters
            self._to.admission.release(self.id)
        self._new_quota = UNLIMITED

    def _retry_in(self, error: Exception | None) -> float | None:
        """What a connection's end means: seconds until the next one, None where there is to be none.

        Args:
            error: what ended it; None where the reader has no more pictures.

        Raises:
            DisownedError, PoisonedError: neither is the source's fault.
        """
        if error is None and (not self._source.has_next or self._stop.is_set):
            return None
        if error is None and self._gave:
            return 0.0
        reason = "a recording without a picture" if error is None else self._reason_of(error)
        if self._source.has_next:
            self.failure = reason = f"passed over: {reason}"
        elif self._source.plays_once and self._seq > self._first_seq:
            # Played in part: to start again would publish the same frames twice.
            self.failure = reason
            return None
        delay = self._backoff.next()
        self._say("down", reason, delay)
        return delay

    def _reason_of(self, error: Exception) -> str:
        if isinstance(error, SourceError):
            return str(error)
        if isinstance(error, (DisownedError, PoisonedError)):
            raise error
        if getattr(error, "sticky", False):  # the GPU's, from where none was expected
            raise PoisonedError(str(error)) from error
        log.error("source failed in a way that is not foreseen", source=self.id, exc_info=error)
        return f"unexpected {type(error).__name__}: see the log"

    def _until_settled(self) -> Wait:
        """Until the last frame's message is on its way: it comes before the word that there are no more."""
        asked, self._held = None, True
        while not self._to.board.is_settled(self.id):
            now = self._clock.monotonic_ns()
            if self._stop.is_set:
                asked = asked or now
                if now - asked >= self._settle_ns:
                    return
            yield now + LOOK_AGAIN_NS

    def _until_room(self) -> Wait:
        """Until the frame that waits is on the board, or given up."""
        self._held = True
        while not self._leave_waiting():
            yield self._clock.monotonic_ns() + (self._held_ns or LOOK_AGAIN_NS)
        self._held, self._last_ns = False, self._clock.monotonic_ns()

    def _until(self, due: int) -> Wait:
        while not self._stop.is_set and self._clock.monotonic_ns() < due:
            yield due

    def _say_ended(self) -> None:
        self._say("ended", self.failure or ("stopped" if self._stop.is_set else None))

    def _set_quota(self, quota: Quota) -> None:
        self._new_quota = quota

    def _apply_quota(self) -> bool:
        """Keep to what admission has left of the detector; whether that has changed."""
        changed = self._quota != self._new_quota
        self._quota = self._new_quota
        self._budget.skip_ratio = self._quota.skip_ratio
        if changed:
            rates = [fps for fps in (self._max_fps, self._quota.fps) if fps]
            self._limit = RateLimit(min(rates)) if rates else None
        return changed

    def check_stalled(self, after_s: float) -> bool:
        """Called by the monitor: say so once when a connected source has sent nothing for a while.

        Returns:
            whether that is so long ago that its library, which has limits of its own, will not return. One that has
            given nothing yet may wait for the driver to make many others' decoders.
        """
        with self._lock:
            now = self._clock.monotonic_ns()
            waited = (now - self._last_ns) / 1e9
            if self._state == "stalled":
                blocked = (now - max(self._last_ns, self._lost_ns)) / 1e9  # a picture that is lost was read
                return self._gave and self._source.live and blocked > max(_LONG * after_s, 2 * self.config.patience_s)
            if self._state == "up" and not self._held and waited > after_s:
                self._say_locked("stalled", f"no frame for {waited:.1f} s{f': {self._lost}' if self._lost else ''}")
            elif self._state == "connecting" and waited > _LONG * after_s:
                reason = self._lost or f"it is blocked while {self._doing}"
                self._say_locked("stalled", f"no picture in {waited:.0f} s: {reason}")
        return False

    def _load(self, picture: Picture) -> Image | None:
        """The picture in the form lanes accept; None if the rate limit leaves it out."""
        now = self._clock.monotonic_ns()
        if self._limit and not self._limit.allows(now if picture.pts is None else picture.pts):
            self._leave_out("rate_limit")
            self._last_ns = now
            return None
        with self._in_library:
            image = picture.load()
        self._decode = picture.decode + self._clock.monotonic_ns() - now
        return image

    def _deliver(self, picture: Picture, image: Image, behind: int) -> bool:
        """Count a picture and leave it on the board; False if it waits for room there."""
        with self._lock:
            if self._in_library.disowned:
                raise DisownedError
            frame = Frame(self._captured(picture, image, behind), image)
            self._hold(picture, frame.info.captured_ns)
            if self._to.board.put(frame, hold_ns=self._held_ns):
                return True
            self._waiting = frame
            return False

    def _hold(self, picture: Picture, now: int) -> None:
        """How long a picture is to wait for one before it that came in the same burst."""
        last, count = self._burst
        count = count + 1 if now - last < self._burst_ns else 1
        self._burst = now, count
        self._held_ns = self._burst_ns if picture.in_burst and count <= _MOST_IN_BURST else 0

    def _captured(self, picture: Picture, image: Image, behind: int) -> FrameInfo:
        """The account and the times of a picture that is captured now."""
        self._to.ledger.captured(self.id)
        now = self._last_ns = self._clock.monotonic_ns()
        captured_at, clock = self._camera_clock.time_of(picture.sent_at, self._clock.utc_ns())
        seq, self._seq = self._seq, self._seq + 1
        return FrameInfo(
            source=self.id,
            session=self._session or "",
            seq=seq,
            pts=picture.pts,
            captured_ns=now,
            captured_at=captured_at,
            clock=clock,
            decode=self._decode,
            width=image.width,
            height=image.height,
            behind=behind,
            pixel_aspect=self.format.pixel_aspect if self.format else 1.0,
        )

    def _leave_waiting(self) -> bool:
        """Leave the frame that waits on the board, or give it up; False if there is no room yet."""
        with self._lock:
            if self._in_library.disowned or self._waiting is None:
                raise DisownedError
            frame, self._waiting = self._waiting, None  # what cannot be put for good is counted by the board
            give_up = self._gives_up if self._stop.is_set else None
            if not self._to.board.put(frame, give_up=give_up, hold_ns=self._held_ns):
                self._waiting = frame
                return False
            return True

    def _check_gave(self) -> None:
        """A recording is at its end, and nothing but errors came of it."""
        if self._lost is not None and not self._gave:
            raise SourceError(f"no picture of {self._errors} could be decoded; the last: {self._lost}")

    def _lose(self, error: DecodeError) -> None:
        self._errors += 1
        self._lost, self._lost_ns = error, self._clock.monotonic_ns()
        log.debug("picture lost", source=self.id, reason=str(error))
        self._leave_out(error.cause)
        if not self._source.plays_once and self._errors >= _MOST_ERRORS:
            raise SourceError(f"{self._errors} pictures in a row could not be decoded; the last: {error}")

    def _leave_out(self, cause: str) -> None:
        """A picture that will not be seen has its number all the same."""
        with self._lock:
            if not self._in_library.disowned:
                self._to.ledger.captured(self.id)
                self._to.ledger.dropped(self.id, self._seq, cause)
                self._seq += 1

    def _say(
        self,
        state: State,
        reason: str | None = None,
        retry_in_s: float | None = None,
        format: VideoFormat | None = None,
    ) -> None:
        with self._lock:
            self._say_locked(state, reason, retry_in_s, format)

    def _say_locked(
        self,
        state: State,
        reason: str | None = None,
        retry_in_s: float | None = None,
        format: VideoFormat | None = None,
    ) -> None:
        """With the lock held, so that states are told in their order; nothing comes after `ended`."""
        if self._state == "ended":
            return
        self._state = state
        self._last_ns = self._clock.monotonic_ns()
        self._to.announce(self.id, self._session, state, reason, retry_in_s, format)
        if state == "ended":
            self.end.set()
