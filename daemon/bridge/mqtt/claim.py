"""One bridge a prefix: two of them would overwrite each other's states.

A retained record names the bridge that has the prefix, and the will of its connection says when it is gone. Where the
broker died with the bridge, nobody has said the will: so the owner is asked, and answers as to any other claim. The
question is a record that comes after every claim, and is not retained.

A bridge that claims a prefix hears all other claims from before its own, and the earliest claim stands: whatever the
order in which they arrive, each of two bridges comes to the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from daemon.bridge.mqtt.broker import Message, Ticket
from daemon.bridge.mqtt.link import Link
from daemon.bridge.mqtt.topics import Topics
from daemon.bridge.port import AwayError
from daemon.clock import Clock

ONLINE, OFFLINE = b"online", b"offline"
_ANSWER_S = 5.0
_STATE_S = 1.0  # to hear the state of the bridge that the record names
_LIFE_S = 12.0  # for the answer of a bridge that lives, which may be at work for some seconds
_ASKED = 2**63 - 1  # `since` of a question
_QUIET_S = 0.1  # for brokers that send what they retain after their answer to the subscription


class Record(msgspec.Struct, frozen=True):
    """
    Attributes:
        id: of the bridge.
        since: UTC ns, when it got the prefix in this run.
    """

    schema: str = "lookout.owner/1"
    id: str = ""
    since: int = 0


class _Rank(NamedTuple):
    since: int
    id: str


class Claim:
    """Holds the prefix from `take` on; `heed` gets every message about it.

    Attributes:
        id: of this bridge.
    """

    def __init__(self, link: Link, topics: Topics, id: str, clock: Clock) -> None:
        self._link, self._topics, self.id, self._clock = link, topics, id, clock
        self._mine = Record(id=id, since=clock.utc_ns())
        self._owner: Record | None = None
        self._state: bytes | None = None
        self._is_held = self._has_echo = self._owner_lives = False

    @property
    def was_of_another(self) -> bool:
        """The retained topics below the prefix were left by another bridge, or nobody knows by whom."""
        return self._owner is None or self._owner.id != self.id

    def look(self) -> None:
        """Before `take`: whether the prefix is free.

        Raises:
            AwayError: another bridge has it, or the broker does not let this one look.
        """
        for topic in (self._topics.owner, self._topics.bridge):
            self._await([self._link.subscribe(topic)], f"read {topic}")
        self._listen(_QUIET_S, lambda: False)
        if self._owner is not None and self._owner.id != self.id:
            self._listen(_STATE_S, lambda: self._state is not None)
            if self._state == ONLINE and self._is_alive():
                raise self._refusal(self._owner.id)

    def take(self) -> None:
        """
        Raises:
            AwayError: the broker does not let this bridge write, or does not pass on what it writes.
        """
        self._is_held = True
        self._await(self._say(), f"write {self._topics.owner}")
        if not self._listen(_ANSWER_S, lambda: self._has_echo):
            raise AwayError(f"the broker does not pass {self._topics.owner} on, so two bridges could not be told apart")

    def give_up(self) -> Ticket:
        """Say that this bridge is gone, for an orderly end; another one may have the prefix then."""
        self._is_held = False
        return self._link.publish(self._topics.bridge, OFFLINE, qos=1, retain=True)

    def heed(self, message: Message) -> bool:
        """Whether a message was about the prefix.

        Raises:
            AwayError: another bridge has it.
        """
        if message.topic == self._topics.bridge:
            self._heed_state(message)
            return True
        if message.topic != self._topics.owner:
            return False
        try:
            record = msgspec.json.decode(message.body, type=Record)
        except msgspec.MsgspecError:
            record = Record()
        if not self._is_held:
            self._hear_owner(record, message)
        elif record.id == self.id:
            self._has_echo = self._has_echo or record == self._mine
        elif record.id and _Rank(record.since, record.id) < _Rank(self._mine.since, self.id):
            raise self._refusal(record.id)
        else:
            self._say()
        return True

    def _hear_owner(self, record: Record, message: Message) -> None:
        if record.since == _ASKED:
            return
        self._owner = record if record.id else None
        self._owner_lives = not message.was_retained and self._owner is not None

    def _is_alive(self) -> bool:
        """Ask the owner: nobody answers for one whose will was lost with the broker."""
        question = msgspec.json.encode(Record(id=self.id, since=_ASKED))
        self._await([self._link.publish(self._topics.owner, question, qos=1, retain=False)], "ask for its owner")
        self._listen(_LIFE_S, lambda: self._owner_lives or self._owner is None or self._state != ONLINE)
        return self._owner_lives and self._state == ONLINE

    def _heed_state(self, message: Message) -> None:
        self._state = message.body
        if self._is_held and message.body != ONLINE and not message.was_retained:
            self._say()  # the will of another connection, such as of a bridge that was refused

    def _listen(self, seconds: float, is_enough: Callable[[], bool]) -> bool:
        end = self._clock.monotonic_ns() + round(seconds * 1e9)
        while True:
            while self._link.inbox:
                self.heed(self._link.inbox.popleft())
            if is_enough():
                return True
            left = (end - self._clock.monotonic_ns()) / 1e9
            if left <= 0:
                return False
            self._link.pump(min(left, 0.5))

    def _await(self, tickets: list[Ticket], what: str) -> None:
        if not self._link.await_all(tickets, _ANSWER_S):
            raise AwayError(f"the broker does not answer within {_ANSWER_S:g} s")
        for ticket in tickets:
            if not ticket.is_taken:
                raise AwayError(f"the broker does not let this bridge {what}: {ticket.text}")

    def _say(self) -> list[Ticket]:
        return [
            self._link.publish(self._topics.owner, msgspec.json.encode(self._mine), qos=1, retain=True),
            self._link.publish(self._topics.bridge, ONLINE, qos=1, retain=True),
        ]

    def _refusal(self, id: str) -> AwayError:
        prefix = self._topics.prefix
        return AwayError(f"{prefix} is used by another bridge ({id[:16]}): give this target a prefix of its own")
