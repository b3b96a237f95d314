"""One open tab: the messages that it wants, and the bounded queue in front of it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Annotated, NamedTuple

import msgspec

from daemon.clock import Clock
from daemon.dashboard.flow_control import FlowControl

_FLUSH_S = 0.03  # messages of this long go together
_MAX_BYTES = 2 << 20  # that wait for one viewer
_MAX_MESSAGES = 5000
_FRESH_NS = 2_000_000_000  # detections and figures that wait longer are of no use


class Selection(msgspec.Struct, forbid_unknown_fields=True):
    """The messages that a tab asks for.

    Attributes:
        sources: daemon and source of the detections that it wants.
    """

    sources: Annotated[list[tuple[str, str]], msgspec.Meta(max_length=1024)] = []
    metrics: bool = False
    events: bool = True


class ClientMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A message of a tab: its wishes from now on, or how much has come. A field that is absent changes nothing.

    Attributes:
        sources, metrics, events: see `Selection`.
        got: arrays that have come since the start.
    """

    sources: Annotated[list[tuple[str, str]], msgspec.Meta(max_length=1024)] | msgspec.UnsetType = msgspec.UNSET
    metrics: bool | msgspec.UnsetType = msgspec.UNSET
    events: bool | msgspec.UnsetType = msgspec.UNSET
    got: int = 0

    def selection(self) -> Selection | None:
        """The tab's wishes; None if the message has none."""
        given = {name: value for name in _ASKED if (value := getattr(self, name)) is not msgspec.UNSET}
        return Selection(**given) if given else None


_ASKED = Selection.__struct_fields__


class _Waiting(NamedTuple):
    """Attributes:
    since_ns: when it was queued; None for what is to be sent however late.
    """

    message: bytes
    since_ns: int | None


class Viewer:
    """The queue of one tab. The event loop's thread alone uses it."""

    def __init__(self, clock: Clock) -> None:
        self.selection = Selection(events=False)
        self.sources: frozenset[tuple[str, str]] = frozenset()
        self._clock = clock
        self._flow = FlowControl(clock)
        self._queue: deque[_Waiting] = deque()
        self._bytes = 0
        self._skipped = self._lost = 0
        self._news = asyncio.Event()

    def select(self, selection: Selection) -> None:
        self.selection, self.sources = selection, frozenset(selection.sources)

    def report(self, message: ClientMessage) -> None:
        """How much has come."""
        self._flow.acknowledge(message.got)
        if self._queue:
            self._news.set()

    def put(self, message: bytes, *, perishable: bool = False) -> None:
        """Queue a message. A viewer that does not keep up loses those that are out of date, or else the oldest half.

        Args:
            perishable: another comes soon that says more.
        """
        self._queue.append(_Waiting(message, self._clock.monotonic_ns() if perishable else None))
        self._bytes += len(message)
        if self._is_full:
            self._drop_stale()
        if self._is_full:
            while self._bytes > _MAX_BYTES // 2 or len(self._queue) > _MAX_MESSAGES // 2:
                row = self._queue.popleft()
                self._bytes -= len(row.message)
                self._skipped += 1
                self._lost += row.since_ns is None
        self._news.set()

    async def next(self) -> str:
        """The next messages, as a JSON array; waits for the first, and for room on the way."""
        while True:
            await self._news.wait()
            await asyncio.sleep(_FLUSH_S)
            self._news.clear()
            if text := self.poll():
                return text

    def poll(self) -> str:
        """The next messages if there are any, and room for them; otherwise nothing."""
        found = self._pop()
        if not found:
            return ""
        text = f"[{b','.join(found).decode()}]"
        self._flow.sent(len(text))
        return text

    @property
    def _is_full(self) -> bool:
        return self._bytes > _MAX_BYTES or len(self._queue) > _MAX_MESSAGES

    def _pop(self) -> list[bytes]:
        room = self._flow.room
        if room <= 0:
            return []
        self._drop_stale()
        found = list[bytes]()
        while self._queue and (not found or len(self._queue[0].message) <= room):
            row = self._queue.popleft()
            self._bytes -= len(row.message)
            room -= len(row.message)
            found.append(row.message)
        if self._queue:
            self._news.set()
        if self._skipped:
            found.insert(0, b'{"kind":"skipped","messages":%d,"lost":%d}' % (self._skipped, self._lost))
            self._skipped = self._lost = 0
        return found

    def _drop_stale(self) -> None:
        """Leave out what has waited too long to be of use."""
        limit = self._clock.monotonic_ns() - _FRESH_NS
        kept = [row for row in self._queue if row.since_ns is None or row.since_ns > limit]
        self._skipped += len(self._queue) - len(kept)
        self._queue = deque(kept)
        self._bytes = sum(len(row.message) for row in kept)
