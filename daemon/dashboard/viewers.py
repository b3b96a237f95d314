"""One open tab: the messages that it wants, and the bounded queue in front of it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Annotated

import msgspec

_FLUSH_S = 0.03  # messages of this long go together
_MAX_BYTES = 2 << 20  # that wait for one viewer
_MAX_MESSAGES = 5000


class Selection(msgspec.Struct, forbid_unknown_fields=True):
    """The messages that a tab asks for.

    Attributes:
        sources: daemon and source of the detections that it wants.
    """

    sources: Annotated[list[tuple[str, str]], msgspec.Meta(max_length=1024)] = []
    metrics: bool = False
    events: bool = True


class Viewer:
    """The queue of one tab. The event loop's thread alone uses it."""

    def __init__(self) -> None:
        self.selection = Selection(events=False)
        self.sources: frozenset[tuple[str, str]] = frozenset()
        self._queue: deque[bytes] = deque()
        self._bytes = 0
        self._skipped = 0
        self._filled = asyncio.Event()

    def select(self, selection: Selection) -> None:
        self.selection, self.sources = selection, frozenset(selection.sources)

    def put(self, message: bytes) -> None:
        """Queue a message. A viewer that does not keep up loses the oldest half, and is told how many."""
        self._queue.append(message)
        self._bytes += len(message)
        if self._bytes > _MAX_BYTES or len(self._queue) > _MAX_MESSAGES:
            while self._bytes > _MAX_BYTES // 2 or len(self._queue) > _MAX_MESSAGES // 2:
                self._bytes -= len(self._queue.popleft())
                self._skipped += 1
        self._filled.set()

    async def next(self) -> str:
        """The next messages, as a JSON array; waits for the first."""
        await self._filled.wait()
        await asyncio.sleep(_FLUSH_S)
        self._filled.clear()
        rows = [*self._queue]
        self._queue.clear()
        self._bytes = 0
        if self._skipped:
            rows.insert(0, b'{"kind":"skipped","messages":%d}' % self._skipped)
            self._skipped = 0
        return f"[{b','.join(rows).decode()}]"
