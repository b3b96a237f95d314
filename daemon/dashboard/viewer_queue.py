"""One viewer of one source: the queue in front of it, which is as long as its pictures are fresh."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import NamedTuple

import msgspec

from daemon.clock import Clock
from daemon.dashboard.flow_control import FlowControl
from daemon.dashboard.muxer import Fragment, Init

Key = tuple[str, str]
"""A daemon and a source."""

_MAX_BYTES = 4 << 20  # that wait
_MAX_WAIT_NS = 1_000_000_000
_JOINED = 256 << 10  # bytes of pictures that go together
_TIME = struct.Struct(">d")  # milliseconds, before the bytes of a picture
_encode = msgspec.json.Encoder().encode


class Progress(msgspec.Struct, forbid_unknown_fields=True):
    """A message of a viewer, now and then.

    Attributes:
        got: messages that have come since the start.
        at: the time by its own clock, which comes back with this server's.
    """

    got: int = 0
    at: float | None = None


class _StreamStart(NamedTuple):
    """A stream begins."""

    text: str


class _Picture(NamedTuple):
    """Attributes:
    at_ns: when it came here.
    since_ns: when it was queued.
    """

    data: bytes
    at_ns: int
    since_ns: int


class ViewerQueue:
    """A bounded queue. A viewer that does not keep up goes on at the next key picture. The event loop's thread alone
    uses it."""

    def __init__(self, key: Key, clock: Clock) -> None:
        self.key = key
        self._clock = clock
        self._flow = FlowControl(clock)
        self._queue: deque[_StreamStart | _Picture | str] = deque()
        self._answers: deque[str] = deque()  # these go before the queue
        self._bytes = 0
        self._skipped = 0
        self._needs_key = True
        self._last_text = ""
        self._news = asyncio.Event()

    def tell(self, **message: object) -> None:
        """Queue a message, unless it is what was queued last."""
        text = _encode(message).decode()
        if text != self._last_text:
            self._last_text = text
            self._queue.append(text)
            self._news.set()

    def begin(self, init: Init) -> None:
        """Another stream begins: pictures of the last one are of no use."""
        self._drop_pictures()
        self._needs_key, self._last_text = True, ""
        self._queue.append(_StreamStart(_encode({"kind": "init", **msgspec.structs.asdict(init)}).decode()))
        self._news.set()

    def show(self, fragment: Fragment) -> None:
        now = self._clock.monotonic_ns()
        if self._waits_too_long(now):
            self._skipped += self._drop_pictures()
            self._needs_key = True
        if self._needs_key and not fragment.key:
            self._skipped += 1
            return
        if self._skipped:
            self.tell(kind="skipped", frames=self._skipped)
        self._needs_key, self._skipped, self._last_text = False, 0, ""
        self._queue.append(_Picture(fragment.data, fragment.at_ns, now))
        self._bytes += len(fragment.data)
        self._news.set()

    def lose(self, packets: int) -> None:
        """Packets were lost before they came here."""
        self._skipped += packets

    def report(self, progress: Progress) -> None:
        """The viewer reports."""
        self._flow.acknowledge(progress.got)
        if progress.at is not None:
            now_ms = self._clock.monotonic_ns() / 1e6
            self._answers.append(_encode({"kind": "clock", "at": progress.at, "now": now_ms}).decode())
        if self._queue or self._answers:
            self._news.set()

    async def next(self) -> bytes | str:
        """The next message, once there is room for it on the way."""
        while (found := self.poll()) is None:
            self._news.clear()
            await self._news.wait()
        return found

    def poll(self) -> bytes | str | None:
        """The next message if there is one, and room for it."""
        found = self._answers.popleft() if self._answers else self._pop()
        if found is not None:
            self._flow.sent(len(found))
        return found

    def _pop(self) -> bytes | str | None:
        """A message, or pictures that go together: the time when the last of them came, and their bytes."""
        if not self._queue:
            return None
        first, room = self._queue[0], min(_JOINED, self._flow.room)
        if not isinstance(first, _Picture):
            self._queue.popleft()
            return first.text if isinstance(first, _StreamStart) else first
        parts, size = list[bytes](), 0
        while room > 0 and self._queue and isinstance(part := self._queue[0], _Picture):
            if parts and size + len(part.data) > room:
                break
            self._queue.popleft()
            parts.append(part.data)
            size, at_ns = size + len(part.data), part.at_ns
        self._bytes -= size
        return _TIME.pack(at_ns / 1e6) + b"".join(parts) if parts else None

    def _waits_too_long(self, now: int) -> bool:
        oldest = next((row.since_ns for row in self._queue if isinstance(row, _Picture)), now)
        return now - oldest > _MAX_WAIT_NS or self._bytes > _MAX_BYTES

    def _drop_pictures(self) -> int:
        """Forget all pictures that wait, and the beginnings of streams before the last; returns their number."""
        begins = [row for row in self._queue if isinstance(row, _StreamStart)]
        kept = [row for row in self._queue if isinstance(row, str) or row in begins[-1:]]
        dropped = sum(isinstance(row, _Picture) for row in self._queue)
        self._queue, self._bytes = deque(kept), 0
        return dropped
