"""The topics that the bridge retains at the broker, with a table of them that outlives the bridge.

A topic is in the table before it is told, and stays until the broker has confirmed that it is empty again. So a source
that was removed while the bridge was away leaves nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec
import structlog

from daemon.bridge.mqtt.broker import Ticket
from daemon.bridge.mqtt.link import Link
from daemon.bridge.targets.opening import Memory

log = structlog.get_logger(__name__)
_KEY = "topic "  # of the memory, before the topic
_AT_ONCE = 50  # on their way, so that events find room
_ROUNDS, _ROUND_S = 20, 0.01


class About(msgspec.Struct, frozen=True):
    """The daemon and the source that a topic is about.

    Attributes:
        daemon: empty where only all of them together know whether it is over.
        source: empty for a topic of a daemon.
    """

    daemon: str
    source: str = ""


_NOBODY = About("")


@dataclass(frozen=True)
class Wanted:
    """A topic that should be there.

    Attributes:
        body: None to leave it as it is: nothing newer is known.
    """

    about: About
    body: bytes | None


class Retained:
    """Used by the thread of the target."""

    def __init__(self, link: Link, memory: Memory) -> None:
        self._link, self._memory = link, memory
        self._table = dict(_stored(memory.read()))
        self._told: dict[str, bytes] = {}  # by this connection
        self._wanted: Mapping[str, Wanted] = {}
        self._waiting: dict[str, Wanted] = {}  # to be told, in this order; with an empty body to be cleared
        self._sent: dict[str, tuple[Ticket, bytes]] = {}
        self._refused: set[str] = set()

    def __iter__(self) -> Iterator[tuple[str, About]]:
        """Topics that may be at the broker."""
        return iter([*self._table.items()])

    def want(self, wanted: Mapping[str, Wanted]) -> None:
        """Tell what is new in it; what is missing stays."""
        self._wanted = wanted
        for topic, row in wanted.items():
            if row.body is None:
                self._keep(topic)
            elif self._latest(topic) != row.body:
                self._waiting[topic] = row

    def clear(self, topic: str) -> None:
        """Remove it from the broker."""
        if self._latest(topic) != b"":
            self._waiting[topic] = Wanted(_NOBODY, b"")

    def leave(self, topic: str) -> None:
        """It stays at the broker, and is not this bridge's any more."""
        self._waiting.pop(topic, None)
        self._drop(topic)

    def _drop(self, topic: str) -> None:
        self._table.pop(topic, None)
        self._memory.write(_KEY + topic, None)

    def again(self) -> None:
        """Tell all of it once more."""
        self._told.clear()
        self.want(self._wanted)

    def note(self, topic: str, about: About) -> None:
        """A topic that somebody else tells, before it does."""
        self._told.pop(topic, None)
        self._keep(topic)
        self._sent.pop(topic, None)
        self._enter(topic, about)

    def _enter(self, topic: str, about: About) -> None:
        if self._table.get(topic) != about:
            self._table[topic] = about
            self._memory.write(_KEY + topic, msgspec.json.encode(about).decode())

    def tend(self) -> None:
        """Take answers, and send what waits as far as there is room; a part of it where that is much."""
        for _ in range(_ROUNDS):
            self._settle_all()
            self._send_waiting()
            if not self._waiting:
                return
            self._link.pump(_ROUND_S)

    def _settle_all(self) -> None:
        for topic, (ticket, body) in [*self._sent.items()]:
            if ticket.is_done:
                del self._sent[topic]
                self._settle(topic, ticket, body)

    def _send_waiting(self) -> None:
        for topic, row in [*self._waiting.items()]:
            if len(self._sent) >= _AT_ONCE or not self._link.has_room:
                return
            if topic not in self._sent:
                del self._waiting[topic]
                self._send(topic, row)

    @property
    def is_settled(self) -> bool:
        """All is told."""
        return not self._waiting and not self._sent

    def _keep(self, topic: str) -> None:
        row = self._waiting.get(topic)
        if row is not None and not row.body:
            del self._waiting[topic]

    def _latest(self, topic: str) -> bytes | None:
        if topic in self._waiting:
            return self._waiting[topic].body
        if topic in self._sent:
            return self._sent[topic][1]
        return self._told.get(topic)

    def _send(self, topic: str, row: Wanted) -> None:
        body = row.body or b""
        if body:
            self._enter(topic, row.about)
        self._sent[topic] = self._link.publish(topic, body, qos=1, retain=True), body

    def _settle(self, topic: str, ticket: Ticket, body: bytes) -> None:
        self._told[topic] = body
        if not ticket.is_taken:
            if topic not in self._refused:
                self._refused.add(topic)
                log.warning("the broker refuses a state", topic=topic, reason=ticket.text)
        elif not body:
            self._drop(topic)


def _stored(memory: Mapping[str, str]) -> Iterator[tuple[str, About]]:
    for key, value in memory.items():
        if key.startswith(_KEY):
            with contextlib.suppress(msgspec.MsgspecError):
                yield key.removeprefix(_KEY), msgspec.json.decode(value, type=About)
