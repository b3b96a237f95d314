"""Prefixes that this target had before: nothing of it stays below them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import structlog

from daemon.bridge.mqtt.broker import Message
from daemon.bridge.mqtt.claim import Record
from daemon.bridge.mqtt.homeassistant import ident
from daemon.bridge.mqtt.link import Link
from daemon.bridge.mqtt.topics import Topics
from daemon.bridge.port import AwayError
from daemon.bridge.targets.opening import Memory
from daemon.clock import Clock

log = structlog.get_logger(__name__)
_KEY = "prefix "  # of the memory, before a prefix that is or was in use
_ANSWER_S = 5.0
_QUIET_S = 0.2  # for brokers that send what they retain after their answer to the subscription


class Left(NamedTuple):
    """A prefix that was given up.

    Attributes:
        is_free: no other bridge has it by now, so its topics are to be cleared.
    """

    prefix: str
    is_free: bool

    def has(self, topic: str) -> bool:
        """Whether a topic is one of its states, or one of its documents for Home Assistant."""
        is_document = topic.endswith("/config") and f"/device/{ident(self.prefix)}--" in topic
        return is_document or topic.startswith((f"{self.prefix}/sources/", f"{self.prefix}/daemons/"))


class Former:
    """
    Args:
        id: of this bridge in the record of a prefix's owner.
        heed: is given all messages about anything else.
    """

    def __init__(self, link: Link, memory: Memory, id: str, heed: Callable[[Message], object], clock: Clock) -> None:
        self._link, self._memory, self._id, self._heed, self._clock = link, memory, id, heed, clock

    def leave(self, prefix: str) -> list[Left]:
        """All but this one, which is in use. The record of their owner is cleared, unless that is another bridge.

        Raises:
            AwayError: the connection is lost; they are left at the next one.
        """
        known = [key.removeprefix(_KEY) for key in self._memory.read() if key.startswith(_KEY)]
        self._memory.write(_KEY + prefix, "used")
        return [self._leave(name) for name in known if name != prefix]

    def _leave(self, prefix: str) -> Left:
        topics = Topics(prefix, ())
        owner = self._owner(topics.owner)
        is_free = owner is None or owner.id in ("", self._id)
        tickets = []
        if is_free:
            tickets = [self._link.publish(topic, b"", qos=1, retain=True) for topic in (topics.bridge, topics.owner)]
        if not self._link.await_all(tickets, _ANSWER_S):
            raise AwayError(f"the broker does not answer within {_ANSWER_S:g} s")
        for ticket in tickets:
            if not ticket.is_taken:
                log.warning("the former prefix of a target cannot be cleared", prefix=prefix, reason=ticket.text)
        self._memory.write(_KEY + prefix, None)
        return Left(prefix, is_free)

    def _owner(self, topic: str) -> Record | None:
        """The record of a prefix; None where it has none."""
        found: Record | None = None
        self._link.await_all([self._link.subscribe(topic)], _ANSWER_S)
        end = self._clock.monotonic_ns() + round(_QUIET_S * 1e9)
        while found is None:
            while self._link.inbox:
                message = self._link.inbox.popleft()
                if message.topic == topic:
                    found = _record(message.body)
                else:
                    self._heed(message)
            left = (end - self._clock.monotonic_ns()) / 1e9
            if left <= 0:
                break
            self._link.pump(left)
        self._link.unsubscribe(topic)
        return found


def _record(body: bytes) -> Record:
    try:
        return msgspec.json.decode(body, type=Record)
    except msgspec.MsgspecError:
        return Record()
