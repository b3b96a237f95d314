"""Hardware decoders kept from one connection to the next: making one takes the driver 50 ms or more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import structlog
from av.video.stream import VideoStream

from daemon.sources.decode import Decoder, SoftwareDecoder, UnsuitableError, pixel_format
from daemon.sources.nvdec.capability import Capability
from daemon.sources.nvdec.costs import decoder_bytes, picture_bytes
from daemon.sources.nvdec.decoder import NvdecDecoder
from daemon.sources.nvdec.port import Holder, Key, MakeSession, Session, UploadTarget
from daemon.sources.nvdec.upload import UploadingDecoder

log = structlog.get_logger(__name__)


class Pool:
    """Implements `daemon.sources.decode.DecoderPool`; safe to use from every thread.

    Args:
        card: what can be decoded.
        make: opens a session.
        make_target: makes room for pictures of a width and height that come from the CPU.
        surfaces: pictures of each source that may be on their way at once.
        threads: see `DecoderPool`.
        limit: bytes of the GPU's memory for all sessions, None for any.
        make_current: makes the GPU usable in the calling thread.
        on_close: what to release after all sessions.
    """

    def __init__(
        self,
        card: Capability,
        make: MakeSession,
        make_target: Callable[[int, int], UploadTarget],
        surfaces: int,
        threads: int,
        limit: int | None = None,
        make_current: Callable[[], None] = lambda: None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self.make_current = make_current
        self.card, self.threads = card, threads
        self._make_target = make_target
        self._make, self._surfaces, self._limit, self._on_close = make, surfaces, limit, on_close
        self._idle: list[tuple[Key, int, Session]] = []  # the longest idle first
        self._closing: list[Holder] = []  # to be closed when their pictures are home
        self._reserved: list[int] = []  # what each decoder may take
        self._taken: list[int] = []  # what sessions in use take
        self._peak = 0  # decoders at once, so far
        self._lock = threading.Lock()

    @property
    def memory(self) -> int:
        with self._lock:
            return sum(self._reserved)

    def decoder(self, stream: VideoStream, *, low_latency: bool) -> Decoder:
        context = stream.codec_context
        codec, size = context.name, (context.width, context.height)
        if reason := self.card.unsupported_reason(codec, *size, pixel_format(stream)):
            raise UnsuitableError(reason)
        cost = decoder_bytes(codec, *size, self._surfaces, low_latency=low_latency)
        self._reserve(cost)
        return NvdecDecoder(self, codec, cost, low_latency)

    def software(self, stream: VideoStream) -> Decoder:
        context = stream.codec_context
        most = picture_bytes(context.width, context.height)
        cost = most * self._surfaces
        try:
            self._reserve(cost)
        except UnsuitableError as error:
            log.warning("pictures that the CPU decodes stay in host memory", reason=str(error))
            return SoftwareDecoder()
        return UploadingDecoder(most, self._make_target, self._close_when_free, partial(self.release, cost))

    def acquire(self, key: Key, cost: int) -> Session:
        """An idle session, or a new one, for the calling thread.

        Raises:
            UnsuitableError: the decoder refuses.
        """
        with self._lock:
            found = next((row for row in reversed(self._idle) if row[0] == key), None)
            if found:
                self._idle.remove(found)
            self._taken.append(cost)
        self._trim()
        try:
            session = found[2] if found else self._make(key[0], key[1])
        except BaseException:
            with self._lock:
                self._taken.remove(cost)
            raise
        session.make_current()
        return session

    def give(self, key: Key, cost: int, session: Session) -> None:
        """A drained session, for whoever comes next with the same parameters."""
        with self._lock:
            self._taken.remove(cost)
            self._idle.append((key, cost, session))
        self._trim()

    def discard(self, cost: int, session: Session) -> None:
        """A session that failed."""
        with self._lock:
            self._taken.remove(cost)
        self._close_when_free(session)

    def amend(self, cost: int, needs: int) -> None:
        """A decoder, and the session that it has taken, take something else than was thought.

        Raises:
            UnsuitableError: there is no room for it; all is as before.
        """
        with self._lock:
            self._reserved.remove(cost)
            try:
                self._check_room(needs)
            except UnsuitableError:
                self._reserved.append(cost)
                raise
            self._reserved.append(needs)
            self._taken.remove(cost)
            self._taken.append(needs)
        self._trim()

    def release(self, cost: int) -> None:
        """The room that a decoder had."""
        with self._lock:
            self._reserved.remove(cost)

    def close(self) -> None:
        with self._lock:
            self._peak = 0
        self._trim()
        if self._closing:
            log.warning("decoders left behind: somebody still holds their pictures", count=len(self._closing))
            return
        self._on_close()

    def _close_when_free(self, holder: Holder) -> None:
        """Close it when its pictures are home."""
        with self._lock:
            self._closing.append(holder)
        self._trim()

    def _reserve(self, cost: int) -> None:
        """Room for one more decoder; idle sessions do not count, they go when it takes a session."""
        with self._lock:
            self._check_room(cost)
            self._reserved.append(cost)
            self._peak = max(self._peak, len(self._reserved))

    def _check_room(self, cost: int) -> None:
        """With the lock held."""
        limit, taken = self._limit, sum(self._reserved)
        if limit is not None and taken + cost > limit:
            raise UnsuitableError(
                f"no room: it needs {cost >> 20} MiB of GPU memory, and of {limit >> 20} MiB for decoding "
                f"{taken >> 20} are taken; see gpu.memory_limit_mib"
            )

    def _trim(self) -> None:
        """Close what is idle beyond the most that was ever used at once, or what there is room for."""
        with self._lock:
            while self._idle and (
                len(self._idle) + len(self._taken) > self._peak
                or (self._limit is not None and sum(self._taken) + self._idle_bytes() > self._limit)
            ):
                self._closing.append(self._idle.pop(0)[2])
            closing = [session for session in self._closing if session.all_free]
            self._closing = [session for session in self._closing if session not in closing]
        for session in closing:
            session.close()

    def _idle_bytes(self) -> int:
        return sum(cost for _, cost, _ in self._idle)
