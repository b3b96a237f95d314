"""A pool of hardware decoders, reused between connections: the driver needs 50 ms or more to create one."""

from __future__ import annotations

import threading
from functools import partial
from typing import NamedTuple

import structlog
from av.video.stream import VideoStream

from daemon.clock import Clock, SystemClock
from daemon.sources.decode import Decoder, SoftwareDecoder, UnsuitableError, pixel_format
from daemon.sources.nvdec.capability import Capability
from daemon.sources.nvdec.costs import decoder_bytes, picture_bytes
from daemon.sources.nvdec.decoder import NvdecDecoder
from daemon.sources.nvdec.port import DecoderDevice, DecoderSession, PictureOwner, SessionKey
from daemon.sources.nvdec.upload import UploadingDecoder

log = structlog.get_logger(__name__)
_IDLE_NS = 120_000_000_000  # longer than any camera is away that has only lost its connection


class _Idle(NamedTuple):
    """A session that no decoder has, its bytes, and since when."""

    key: SessionKey
    cost: int
    session: DecoderSession
    since_ns: int


class NvdecPool:
    """Implements `daemon.sources.decode.DecoderPool`; safe to use from every thread.

    A session that a source has left serves the next one of its codec whose pictures are not larger. So a source that
    connects again, and one that takes the place of another, open no decoder.

    Args:
        device: closed with the pool.
        limit: bytes of the GPU's memory for all sessions, None for no limit.
    """

    def __init__(
        self, capability: Capability, device: DecoderDevice, limit: int | None = None, clock: Clock | None = None
    ) -> None:
        self.capability, self._device, self._limit = capability, device, limit
        self._now = (clock or SystemClock()).monotonic_ns
        self.threads, self.make_current = device.threads, device.make_current
        self._idle: list[_Idle] = []  # the longest idle first
        self._closing: list[PictureOwner] = []  # closed once their surfaces are returned
        self._reserved: list[int] = []  # bytes of each decoder
        self._taken: list[int] = []  # bytes of each session in use
        self._peak = 0  # the most decoders at once so far
        self._lock = threading.Lock()

    @property
    def memory(self) -> int:
        with self._lock:
            return sum(self._reserved)

    def decoder(self, stream: VideoStream, *, low_latency: bool) -> Decoder:
        context = stream.codec_context
        codec, size = context.name, (context.width, context.height)
        if reason := self.capability.unsupported_reason(codec, *size, pixel_format(stream)):
            raise UnsuitableError(reason)
        cost = decoder_bytes(codec, *size, self._device.surfaces, low_latency=low_latency)
        self._reserve(cost)
        return NvdecDecoder(self, codec, cost, low_latency)

    def software(self, stream: VideoStream) -> Decoder:
        context = stream.codec_context
        max_bytes = picture_bytes(context.width, context.height)
        cost = max_bytes * self._device.surfaces
        try:
            self._reserve(cost)
        except UnsuitableError as error:
            log.warning("pictures that the CPU decodes stay in host memory", reason=str(error))
            return SoftwareDecoder()
        return UploadingDecoder(max_bytes, self._device.open_target, self._close_when_free, partial(self.release, cost))

    def acquire(self, key: SessionKey, cost: int, size: tuple[int, int]) -> DecoderSession:
        """An idle session, or a new one, bound to the calling thread.

        Args:
            size: width and height of the pictures as far as they are known, 0 otherwise.

        Raises:
            UnsuitableError: the driver refuses a new session.
        """
        with self._lock:
            if found := self._fitting(key, cost, size):
                self._idle.remove(found)
            self._taken.append(cost)
        self._trim()
        try:
            session = found.session if found else self._device.open_session(key[0], key[1])
        except BaseException:
            with self._lock:
                self._taken.remove(cost)
            raise
        session.make_current()
        return session

    def put_back(self, key: SessionKey, cost: int, session: DecoderSession) -> None:
        """Return a drained session; the next decoder that it fits reuses it."""
        with self._lock:
            self._taken.remove(cost)
            self._idle.append(_Idle(key, cost, session, self._now()))
        self._trim()

    def make_room(self) -> bool:
        """Close the session that is idle for the longest time; False if none is."""
        with self._lock:
            if not self._idle:
                return False
            self._closing.append(self._idle.pop(0).session)
        self._trim()
        return True

    def tidy(self) -> None:
        """See `DecoderPool`."""
        with self._lock:
            if self._idle and self._idle[0].since_ns < self._now() - _IDLE_NS:
                self._closing.append(self._idle.pop(0).session)
        self._trim()

    def discard(self, cost: int, session: DecoderSession) -> None:
        """Close a session that failed."""
        with self._lock:
            self._taken.remove(cost)
        self._close_when_free(session)

    def change_cost(self, cost: int, needs: int) -> None:
        """Replace the estimated cost of a decoder and its session by the measured one.

        Raises:
            UnsuitableError: the pool has no room for it; nothing is changed.
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
        """Release the memory that was reserved for a decoder."""
        with self._lock:
            self._reserved.remove(cost)

    def close(self) -> None:
        with self._lock:
            self._peak = 0
        self._trim()
        if self._closing:
            log.warning("decoders left open: their pictures are still in use", count=len(self._closing))
            return
        self._device.close()

    def _close_when_free(self, owner: PictureOwner) -> None:
        """Close a session or upload target once its surfaces have been returned."""
        with self._lock:
            self._closing.append(owner)
        self._trim()

    def _reserve(self, cost: int) -> None:
        """Reserve memory for one more decoder. Idle sessions do not count: they are closed when memory is needed."""
        with self._lock:
            self._check_room(cost)
            self._reserved.append(cost)
            self._peak = max(self._peak, len(self._reserved))

    def _check_room(self, cost: int) -> None:
        """Requires the lock."""
        limit, taken = self._limit, sum(self._reserved)
        if limit is not None and taken + cost > limit:
            raise UnsuitableError(
                f"no room: it needs {cost >> 20} MiB of GPU memory, and of {limit >> 20} MiB for decoding "
                f"{taken >> 20} are taken; see gpu.memory_limit_mib"
            )

    def _trim(self) -> None:
        """Close idle sessions beyond the peak number of decoders or the memory limit, and owners that are free."""
        with self._lock:
            while self._idle and (
                len(self._idle) + len(self._taken) > self._peak
                or (self._limit is not None and sum(self._taken) + self._idle_bytes() > self._limit)
            ):
                self._closing.append(self._idle.pop(0).session)
            closing = [session for session in self._closing if session.all_free]
            self._closing = [session for session in self._closing if session not in closing]
        for session in closing:
            session.close()

    def _idle_bytes(self) -> int:
        return sum(row.cost for row in self._idle)

    def _fitting(self, key: SessionKey, cost: int, size: tuple[int, int]) -> _Idle | None:
        """The idle session that serves a stream best: one of the same parameters, or the smallest that has
        room. Requires the lock."""
        same = next((row for row in reversed(self._idle) if row.key == key), None)
        if same or not all(size):
            return same
        limit, taken = self._limit, sum(self._reserved)

        def fits(row: _Idle) -> bool:
            width, height = row.session.room
            has_room = width >= size[0] and height >= size[1]
            is_allowed = limit is None or taken - cost + row.cost <= limit
            return row.key[:2] == key[:2] and has_room and is_allowed

        return min(filter(fits, reversed(self._idle)), key=lambda row: row.cost, default=None)
