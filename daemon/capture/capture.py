"""The capture of one source, from its connection to the board.

The subclasses `camera.CameraCapture` and `recordings.RecordingCapture` order the steps and wait between them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import structlog
from av.packet import Packet

from daemon.capture.condition import SourceCondition
from daemon.capture.delivery import Delivery
from daemon.capture.library import DetachedError, LibraryCalls
from daemon.capture.rate_allowance import Allowance
from daemon.capture.sinks import DETACHED, CaptureSinks
from daemon.capture.timing import Backoff
from daemon.clock import Bell, Clock
from daemon.config.sources import ReconnectConfig, SourceConfig
from daemon.errors import DecodeError, LoginRefusedError, PoisonedError, SourceError
from daemon.pipeline.drop_causes import GiveUp
from daemon.sources.port import PacketReader, Picture, Reader, Source
from daemon.system.stop_token import StopToken
from detectors.port import Image
from lookout.messages import State, VideoFormat

log = structlog.get_logger(__name__)

_MAX_ERRORS = 300  # lost pictures in a row after which a source is reconnected
_ADMISSION_NS = 10_000_000_000  # time limit of admission's answer
POLL_NS = 100_000_000  # for conditions that also wake the thread

Wait = Iterator[int]
"""Ends when a condition holds. Yields the monotonic time, ns, of the next check; an earlier check is safe."""


class Capture:
    """Captures one source.

    Args:
        seq: number of the first frame; not 0 if another process had the source before.
        settle_s: how long a stopped source waits until its last frame is sent. A source that ends by itself waits
            without limit.

    Attributes:
        wake: wakes the thread that serves the source.
        end: set when the capture has ended.
        failure: why a recording was not played to its end, None if it was.
        format: of the connection, None if there is none.
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
        self.config = config
        self._bell = Bell()
        self.wake: Callable[[], None] = self._bell.ring
        self.end = StopToken()
        self.failure: str | None = None
        self.format: VideoFormat | None = None
        self._source, self._sinks, self._clock = source, sinks, clock
        self._backoff = Backoff(reconnect)
        self._stop, self._settle_ns = StopToken(), round(settle_s * 1e9)
        # Guards the state, and the frames when another capture takes the source.
        self._lock = threading.Lock()
        self._library = LibraryCalls(self._lock)
        self._condition = SourceCondition(config, sinks.announce, clock, self._lock)
        self._allowance = Allowance(config.max_fps)
        self._delivery = Delivery(config.id, sinks.board, sinks.ledger, self._library, clock)
        self._delivery.count_from(seq)
        self._tapped: PacketReader | None = None  # the reader, if its source has packets
        self._is_asked_for = False  # the next connection

    @property
    def id(self) -> str:
        return self.config.id

    @property
    def state(self) -> State:
        return self._condition.state

    @property
    def seq(self) -> int:
        """Number of the next frame."""
        return self._delivery.seq

    @property
    def ended(self) -> bool:
        """Whether the capture has ended."""
        return self.end.is_set

    def listen(self) -> None:
        """Let the board wake this capture. Call it once `wake` is set, before the thread starts."""
        self._sinks.board.listen(self.id, self.wake)

    def stop(self, drop_cause: GiveUp = "shutdown") -> None:
        """Ask the capture to end; a frame that waits for room is then dropped for this cause."""
        self._delivery.give_up_as(drop_cause)
        self._stop.set()

    def detach(self) -> int | None:
        """Give up the source, because the library blocks, so that another capture can take it.

        Returns:
            The number of the other's first frame; None if the library has returned.
        """
        with self._lock:
            if not self._library.is_active or self._stop.is_set or self._library.is_detached:
                return None
            self._condition.announce_locked("down", f"left behind: it was blocked while {self._activity}", 0.0)
            self._detach_locked()
            return self._delivery.seq

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
            reason = reason or f"left behind: it is blocked while {self._activity}"
            self._condition.announce_locked("ended", reason)
            self._detach_locked()

    def count_from(self, seq: int) -> None:
        """Set the number of the first frame; before the start."""
        self._delivery.count_from(seq)

    def check_stalled(self, after_s: float) -> bool:
        """Called by the monitor; see `SourceCondition.check_stalled`."""
        with self._lock:
            return self._condition.check_stalled(after_s, self._activity, live=self._source.live)

    def _tap_locked(self, reader: PacketReader) -> None:
        id, session = self.id, self._condition.session or ""
        packets, recorder = self._sinks.packets, self._sinks.recorder

        def put(packet: Packet[Any]) -> None:
            is_watched, is_recorded = packets.is_watched(id), recorder.is_recorded(id)
            if not (is_watched or is_recorded) or not packet.size:
                return
            info = reader.describe(packet)
            if is_recorded:
                recorder.record(id, session, info, packet)
            if is_watched:
                packets.put_packet(id, session, info, bytes(packet))

        self._tapped = reader
        reader.set_tap(put)

    def _detach_locked(self) -> None:
        self._stop.set()
        if self._tapped:
            self._tapped.set_tap(None)
            self._tapped = None
        self._library.detach()
        self._delivery.detach()
        self._sinks.admission.release(self.id)
        self._sinks = DETACHED
        self._condition.detach()
        self.end.set()

    @property
    def _activity(self) -> str:
        if self._tapped and self._tapped.awaits_decoder:
            return "waiting for its decoder"
        return "reading" if self.format else "connecting"

    # --- one connection, step by step --------------------------------------------------------------------------------

    def _begin_connection(self) -> None:
        self._is_asked_for = False
        self._allowance.budget.set_late(0)
        self._condition.begin()
        self._delivery.begin(self._condition.session or "", self._source.clock)

    def _open(self) -> Reader:
        return self._library.call(partial(self._source.open, self._allowance.budget), lambda reader: reader.close())

    def _request_admission(self, reader: Reader) -> Future[None]:
        """Ask for the source's quota, which may change at any time."""
        fps, allowance = self._allowance.limited(reader.format.fps), self._allowance
        with self._lock:  # another capture may take the source next
            return self._sinks.admission.admit(self.id, fps, allowance.set, reader.format)

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
                if not self._library.is_detached:
                    self._tap_locked(reader)
        self._delivery.set_rate(reader.format.fps)
        self._allowance.apply()
        return True

    def _until_readmitted(self, reader: Reader) -> Wait:
        """Until admission has answered for the format that the source has now, which is then announced.

        Raises:
            SourceError: admission refuses the source, or does not answer.
        """
        answer = self._request_admission(reader)
        yield from self._until_admitted(answer)
        if self._is_admitted(reader, answer) and self.state == "up":
            self._condition.announce_up(self._allowance.quota.reason, reader.format)

    def _process(self, reader: Reader, picture: Picture) -> bool:
        """Load a picture and put it on the board; False if the board has no room.

        Raises:
            DecodeError: the picture cannot be loaded.
        """
        self._count_passed_over()
        begun = self._clock.monotonic_ns()
        image = self._load(picture, begun)
        condition, loaded = self._condition, self._condition.heard_ns
        late, lateness = self._lateness(picture)
        self._allowance.budget.set_late(late if self._sinks.board.live else 0)  # 0: nothing is skipped
        has_changed = reader.format is not self.format
        self.format = format = reader.format
        if (self._allowance.has_changed and self._allowance.apply()) or condition.state != "up" or has_changed:
            self._backoff.reset()
            condition.announce_up(self._allowance.quota.reason, format)
        if image is None:
            return True
        with self._lock:
            return self._delivery.deliver(
                picture,
                image,
                captured_ns=loaded,
                decode_ns=picture.decode + loaded - begun,
                lateness=lateness,
                pixel_aspect=format.pixel_aspect,
            )

    def _load(self, picture: Picture, now: int) -> Image | None:
        """The picture in the form that lanes accept; None if the rate limit drops it."""
        if not self._allowance.passes(now if picture.pts is None else picture.pts):
            self._count_dropped("rate_limit")
            self._condition.note_picture(now)
            return None
        image = self._library.call(picture.load)
        self._condition.note_picture(self._clock.monotonic_ns())
        return image

    def _lateness(self, picture: Picture) -> tuple[int, int]:
        """Lateness of the source now, and of this picture when it was captured; ns."""
        raise NotImplementedError

    def _end_connection(self) -> None:
        self._count_passed_over()
        self.format = None
        with self._lock:  # see `_request_admission`
            self._tapped = None
            self._sinks.admission.release(self.id)
        self._allowance.reset()

    def _retry_in(self, error: Exception | None) -> float | None:
        """Seconds until the next connection, None if there is to be none.

        Args:
            error: what ended the last connection; None at the end of a recording.

        Raises:
            DetachedError, PoisonedError: not the source's fault.
        """
        if error is None and (not self._source.has_next or self._stop.is_set):
            return None
        if error is None and self._condition.has_delivered:
            return 0.0
        reason = "a recording without a picture" if error is None else self._reason_of(error)
        if self._source.has_next:
            self.failure = reason = f"passed over: {reason}"
        elif self._source.plays_once and self._delivery.seq > self._delivery.first_seq:
            # Part of it was published: a restart would publish the same frames twice.
            self.failure = reason
            return None
        delay = self._backoff.next(refused=isinstance(error, LoginRefusedError))
        self._condition.announce("down", reason, delay)
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
        asked = None
        self._condition.wait()
        while not self._sinks.board.is_settled(self.id):
            now = self._clock.monotonic_ns()
            if self._stop.is_set:
                asked = asked or now
                if now - asked >= self._settle_ns:
                    return
            yield now + POLL_NS

    def _until_room(self) -> Wait:
        """Until the pending frame is on the board, or dropped."""
        self._condition.wait()
        while not self._put_pending():
            yield self._clock.monotonic_ns() + (self._delivery.held_ns or POLL_NS)
        self._condition.go_on(self._clock.monotonic_ns())

    def _put_pending(self) -> bool:
        with self._lock:
            return self._delivery.put_pending(stopped=self._stop.is_set)

    def _until_retry(self, delay: float) -> Wait:
        """Until the next connection is due, in seconds, or asked for."""
        due = self._clock.monotonic_ns() + round(delay * 1e9)
        while not (self._stop.is_set or self._is_asked_for) and self._clock.monotonic_ns() < due:
            yield due

    def _until_due(self, due: int) -> Wait:
        """Until a picture is due."""
        self._condition.wait()
        while (now := self._clock.monotonic_ns()) < due and not self._stop.is_set:
            yield due
        self._condition.go_on(now)

    def _announce_ended(self) -> None:
        self._condition.announce("ended", self.failure or ("stopped" if self._stop.is_set else None))
        self.end.set()

    def _check_delivered(self) -> None:
        """Raise if a recording ends with nothing but errors."""
        condition = self._condition
        if condition.last_error is not None and not condition.has_delivered:
            raise SourceError(f"no picture of {condition.errors} could be decoded; the last: {condition.last_error}")

    def _on_decode_error(self, error: DecodeError) -> None:
        self._condition.note_lost(error)
        self._count_dropped(error.cause)
        if not self._source.plays_once and (errors := self._condition.errors) >= _MAX_ERRORS:
            raise SourceError(f"{errors} pictures in a row could not be decoded; the last: {error}")

    def _count_dropped(self, cause: str) -> None:
        """Count a picture as captured and dropped."""
        with self._lock:
            self._delivery.drop(cause)

    def _count_passed_over(self) -> None:
        """Count the packets that the reader has passed over since the last call."""
        if self._tapped and (counts := self._tapped.take_passed_over()):
            with self._lock:
                self._delivery.pass_over(counts)
