"""A source's life: connect, read, stamp, put on the board; when the connection breaks, try again.

It is written as a generator that says when it wants to go on instead of waiting, so that one thread can serve many
sources.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

import structlog

from daemon.capture.blocking import BlockingExecutor
from daemon.capture.sinks import DETACHED, UNLIMITED, CaptureSinks, Quota
from daemon.capture.timing import Backoff, CameraClock, Lag, Pacer, RateLimit
from daemon.clock import Clock
from daemon.config import ReconnectConfig, SourceConfig
from daemon.errors import DecodeError, PoisonedError, SourceError
from daemon.messages import State, VideoFormat
from daemon.pipeline.board import Cause
from daemon.pipeline.frames import Frame, FrameInfo
from daemon.sources.decode import NVDEC
from daemon.sources.port import DecodeBudget, Picture, Reader, Skipped, Source
from daemon.system.stop import Stop
from detectors.port import Image

log = structlog.get_logger(__name__)
T = TypeVar("T")

_MOST_ERRORS = 300  # pictures in a row that a source may fail to give before it is connected anew
# In units of monitor.stall_after_s: how long a new connection may take to its first frame, and how long a stalled one
# is left alone before it is replaced.
_LONG = 15
_ADMISSION_NS = 10_000_000_000  # for the answer whether the source may give frames
_BURST_NS = 25_000_000  # less than what is taken for falling behind
_MOST_IN_BURST = 4  # pictures; of more the newest is wanted
_LOOK_AGAIN_NS = 100_000_000  # when waiting for the board, or for what is done aside, which wake the thread before


def _close_unwanted(opening: Future[Reader]) -> None:
    """It was opened too late."""
    if not opening.exception():
        opening.result().close()


Life = Iterator[int]
"""Each item is the monotonic time, ns, at which to go on; going on earlier does no harm."""


class _DisownedError(Exception):
    """The library has come back, and by now another has the source."""


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
                raise _DisownedError


class Capture:
    """Owns one source. `life` retries for ever; `connection` works or raises.

    Args:
        seq: number of its first frame; not 0 where another process had the source before.
        settle_s: how long a source that was asked to end waits for its last frame to be on its way. One that ends by
            itself waits for as long as that takes.

    Attributes:
        config: of the source.
        wake: tells the thread that serves it to go on.
        end: set when nothing more comes of it.
        asks_gpu: as in its configuration.
        fell_to_cpu: it asked for the GPU's decoder, and this connection has not got it.
        failure: why a recording could not be played to its end, None if it could.
        format: of the connection, None where there is none.
        go_on: to do what is to be done now; gives the monotonic time, ns, at which to go on, or None at the end.
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
        self._aside: BlockingExecutor | None = None
        self.wake: Callable[[], None] = lambda: None
        self.end = Stop()
        self.fell_to_cpu = False
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
        self._in_library = _InLibrary(self._lock)
        self._waiting: Frame | None = None  # for room on the board
        self._gave = False  # this connection, a picture
        self._held = False  # waiting for room on the board or for a picture's time: not the source's fault
        self._decode = 0  # ns, of the picture loaded last
        self._burst_ns = self._held_ns = 0  # within which pictures belong together; see `FrameBoard.put`
        self._burst = (0, 0)  # when the last picture of one was captured, and how many there were
        self.step: Callable[[], int | None] = partial(next, self.life(), None)

    @property
    def state(self) -> State:
        return self._state

    @property
    def seq(self) -> int:
        """Number of its next frame."""
        return self._seq

    @property
    def live(self) -> bool:
        """Reading blocks until the source gives something."""
        return self._source.live

    @property
    def ended(self) -> bool:
        """Nothing more comes of it."""
        return self.end.is_set

    def serve_by(self, wake: Callable[[], None], aside: BlockingExecutor | None) -> None:
        """A thread serves it from here on.

        Args:
            wake: tells that thread to go on.
            aside: does what takes long, where other sources share the thread.
        """
        self.wake, self._aside = wake, aside
        self._to.board.listen(self.id, wake)

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

    def life(self) -> Life:
        """From the first connection to the end; to be called by `step`."""
        try:
            yield from self._connections()
            # The last frame's message comes before the word that there are no more.
            asked, self._held = None, True
            while not self._to.board.is_settled(self.id):
                now = self._clock.monotonic_ns()
                if self._stop.is_set:
                    asked = asked or now
                    if now - asked >= self._settle_ns:
                        break
                yield now + _LOOK_AGAIN_NS
        except _DisownedError:
            return
        self._say("ended", self.failure or ("stopped" if self._stop.is_set else None))

    def _connections(self) -> Life:
        while not self._stop.is_set:
            try:
                yield from self.connection()
                if not self._source.goes_on or self._stop.is_set:
                    return
                if self._gave:
                    continue
                reason = "a recording without a picture"
            except SourceError as error:
                reason = str(error)
            except (_DisownedError, PoisonedError):
                raise
            except Exception as error:
                if getattr(error, "sticky", False):  # the GPU's, from where none was expected
                    raise PoisonedError(str(error)) from error
                log.exception("source failed in a way that is not foreseen", source=self.id)
                reason = f"unexpected {type(error).__name__}: see the log"
            if self._source.goes_on:
                self.failure = reason = f"passed over: {reason}"
            elif self._source.once and self._seq > self._first_seq:
                # Played in part: to start again would publish the same frames twice.
                self.failure = reason
                return
            delay = self._backoff.next()
            self._say("down", reason, delay)
            yield from self._until(self._clock.monotonic_ns() + round(delay * 1e9))

    def connection(self) -> Life:
        """One connection, until it ends.

        Raises:
            SourceError: it could not be made, or broke.
        """
        self._session = secrets.token_hex(4)
        self._camera_clock = CameraClock(self.id, self._source.clock)
        self._gave, self._lost = False, None
        self._say("connecting")
        reader = yield from self._opened()
        if reader is None:
            return
        try:
            if (yield from self._admitted(reader)):
                yield from self._read(reader)
        finally:
            self.format, self.fell_to_cpu = None, False
            with self._lock:  # as where it enters
                self._to.admission.release(self.id)
            self._new_quota = UNLIMITED
            self._close(reader)

    def _read(self, reader: Reader) -> Life:
        """Until it has no more pictures."""
        errors = 0
        pacer = Pacer(self._clock, self.id) if self._source.paced else None
        lag = Lag()
        late = 0
        # A decoder that is empty takes packets for 50 ms before it has a picture.
        apart = None if self.fell_to_cpu else self._aside
        self._apply_quota()
        while not self._stop.is_set:
            try:
                self._budget.late, self._budget.skip_ratio = late, self._quota.skip_ratio
                picture = (yield from self._first(apart, reader)) if apart else self._next(reader)
                if picture is None:
                    self._check_gave(errors)
                    return
                if isinstance(picture, Skipped):
                    self._leave_out(picture.cause)
                    continue
                if pacer:
                    self._held = True
                    due = pacer.due(picture.pts)
                    while (now := self._clock.monotonic_ns()) < due and not self._stop.is_set:
                        yield due
                    self._held, self._last_ns = False, now
                if self._stop.is_set:
                    return
                image = self._load(picture)
            except DecodeError as error:
                errors += 1
                self._lose(error, errors)
                continue
            errors, apart, self._lost = 0, None, None
            late = self._late(picture, pacer, lag)
            if (self._new_quota is not self._quota and self._apply_quota()) or self._state != "up":
                self._backoff.reset()
                self._gave = True
                self._say("up", self._quota.reason, format=reader.format)
            if image is not None:
                if not self._deliver(picture, image, pacer.behind if pacer else late):
                    image = picture = None
                    yield from self._wait_for_room()
                elif not self._source.live:
                    yield self._last_ns  # others have their turn
            image = picture = None

    def _next(self, reader: Reader) -> Picture | Skipped | None:
        with self._in_library:
            return reader.read()

    def _opened(self) -> Generator[int, None, Reader | None]:
        """None if it is to end before it is open."""
        if self._aside is None:
            return self._open_here()
        opening = yield from self._apart(self._aside, partial(self._source.open, self._budget))
        if not opening.done():
            opening.add_done_callback(_close_unwanted)
            return None
        return opening.result()

    def _open_here(self) -> Reader:
        reader: Reader | None = None
        try:
            with self._in_library:
                reader = self._source.open(self._budget)
        except _DisownedError:  # another capture has the source by now
            if reader is not None:
                reader.close()
            raise
        return reader

    def _first(self, aside: BlockingExecutor, reader: Reader) -> Generator[int, None, Picture | Skipped | None]:
        """The first picture; None if there is none, or if it is to end before."""
        reading = yield from self._apart(aside, reader.read)
        return reading.result() if reading.done() else None

    def _apart(self, aside: BlockingExecutor, work: Callable[[], T]) -> Generator[int, None, Future[T]]:
        """What comes of it, or will, if the source is to end before; others who share the thread go on meanwhile."""
        answer = aside.ask(work)
        while not (answer.done() or self._stop.is_set):
            yield self._clock.monotonic_ns() + _LOOK_AGAIN_NS
        return answer

    def _close(self, reader: Reader) -> None:
        if self._aside:
            self._aside.close(reader.close)
        else:
            with self._in_library:
                reader.close()

    def _late(self, picture: Picture, pacer: Pacer | None, lag: Lag) -> int:
        """By how much this picture came later than it should, ns; 0 where nothing is to be left out for it."""
        if not self._to.board.live:
            return 0
        if pacer:
            return pacer.late
        return lag.of(picture.pts, self._clock.monotonic_ns(), picture.decode) if self._source.live else 0

    def _admitted(self, reader: Reader) -> Generator[int, None, bool]:
        """Ask for the source's share of the detector, which may change at any time; False if it is to end before.

        Raises:
            SourceError: it may give no frames.
        """
        rates = [fps for fps in (reader.format.fps, self._max_fps) if fps]
        with self._lock:  # its name may be another's in the next moment
            answer = self._to.admission.admit(self.id, min(rates, default=None), self._set_quota, reader.format)
        if not answer.done():
            answer.add_done_callback(lambda _: self.wake())
            until = self._clock.monotonic_ns() + _ADMISSION_NS
            while not (answer.done() or self._stop.is_set):
                if self._clock.monotonic_ns() >= until:
                    raise SourceError("admission does not answer")
                yield self._clock.monotonic_ns() + _LOOK_AGAIN_NS
        if not answer.done():
            return False
        answer.result()
        self.format = reader.format
        self._burst_ns = min(_BURST_NS, round(0.5e9 / (reader.format.fps or 1.0)))
        self.fell_to_cpu = self.asks_gpu and reader.format.decoder != NVDEC
        return True

    def _set_quota(self, quota: Quota) -> None:
        self._new_quota = quota

    def _apply_quota(self) -> bool:
        """Keep to what admission has left of the detector; whether that has changed."""
        changed = self._quota != self._new_quota
        self._quota = self._new_quota
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
                raise _DisownedError
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
        return FrameInfo(
            source=self.id,
            session=self._session or "",
            seq=self._next_seq(),
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

    def _wait_for_room(self) -> Life:
        self._held = True
        while not self._leave_waiting():
            yield self._clock.monotonic_ns() + (self._held_ns or _LOOK_AGAIN_NS)
        self._held, self._last_ns = False, self._clock.monotonic_ns()

    def _leave_waiting(self) -> bool:
        """Leave the frame that waits on the board, or give it up; False if there is no room yet."""
        with self._lock:
            if self._in_library.disowned or self._waiting is None:
                raise _DisownedError
            frame, self._waiting = self._waiting, None  # what cannot be put for good is counted by the board
            give_up = self._gives_up if self._stop.is_set else None
            if not self._to.board.put(frame, give_up=give_up, hold_ns=self._held_ns):
                self._waiting = frame
                return False
            return True

    def _until(self, due: int) -> Life:
        while not self._stop.is_set and self._clock.monotonic_ns() < due:
            yield due

    def _check_gave(self, errors: int) -> None:
        """A recording is at its end, and nothing but errors came of it."""
        if self._lost is not None and not self._gave:
            raise SourceError(f"no picture of {errors} could be decoded; the last: {self._lost}")

    def _lose(self, error: DecodeError, in_a_row: int) -> None:
        self._lost, self._lost_ns = error, self._clock.monotonic_ns()
        log.debug("picture lost", source=self.id, reason=str(error))
        self._leave_out(error.cause)
        if not self._source.once and in_a_row >= _MOST_ERRORS:
            raise SourceError(f"{in_a_row} pictures in a row could not be decoded; the last: {error}")

    def _leave_out(self, cause: str) -> None:
        """A picture that will not be seen has its number all the same."""
        with self._lock:
            if not self._in_library.disowned:
                self._to.ledger.captured(self.id)
                self._to.ledger.dropped(self.id, self._next_seq(), cause)

    def _next_seq(self) -> int:
        seq, self._seq = self._seq, self._seq + 1
        return seq

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
