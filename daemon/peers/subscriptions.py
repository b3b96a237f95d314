"""The topics of one connection to a daemon, changed no faster than the daemon allows.

A daemon cuts off a subscriber that asks for more than it needs (`daemon/publish/subscribers.py`). All viewers of the
page share one connection, so that what one of them asks for must not end it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MAX_TOPICS = 1000  # a daemon allows 2,000 requests at once, and a new connection asks for all topics again
_AT_ONCE, _PER_S = 500, 50  # changes
_KEEP_NS = 10_000_000_000  # a topic that nobody wants any more: viewers come back


class Subscriptions:
    """The topics that are subscribed to. One thread uses it.

    Args:
        kept: how topics begin that are kept for a while after the last viewer has gone.
    """

    def __init__(self, kept: bytes, now_ns: int) -> None:
        self._kept = kept
        self.topics: set[bytes] = set()
        self._unwanted: dict[bytes, int] = {}  # since when, ns
        self._left, self._at = float(_AT_ONCE), now_ns

    def change(self, wanted: Iterable[bytes], now_ns: int) -> tuple[Sequence[bytes], Sequence[bytes]]:
        """The topics to end and to begin now. Those without room or time come with a later call.

        Args:
            wanted: the most important first.
        """
        self._left = min(_AT_ONCE, self._left + (now_ns - self._at) * _PER_S / 1e9)
        self._at = now_ns
        order = [*dict.fromkeys(wanted)][:MAX_TOPICS]
        fresh = [name for name in order if name not in self.topics]
        ended = self._spend(self._superfluous({*order}, len(fresh), now_ns))
        self.topics.difference_update(ended)
        begun = self._spend(fresh[: MAX_TOPICS - len(self.topics)])
        self.topics.update(begun)
        return ended, begun

    def _superfluous(self, wanted: set[bytes], fresh: int, now_ns: int) -> list[bytes]:
        """Topics that nobody wants, the longest unwanted first: those whose time is over, and more for room."""
        for name in self._unwanted.keys() & wanted:
            del self._unwanted[name]
        for name in self.topics - wanted:
            self._unwanted.setdefault(name, now_ns)
        needed = len(self.topics) + fresh - MAX_TOPICS
        old = sorted(self._unwanted, key=self._unwanted.__getitem__)
        return [
            name
            for place, name in enumerate(old)
            if place < needed or not name.startswith(self._kept) or now_ns - self._unwanted[name] > _KEEP_NS
        ]

    def _spend(self, names: Sequence[bytes]) -> Sequence[bytes]:
        done = names[: int(self._left)]
        self._left -= len(done)
        for name in done:
            self._unwanted.pop(name, None)
        return done
