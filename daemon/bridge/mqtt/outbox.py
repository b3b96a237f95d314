"""Records on their way over one connection: none of them is published twice while its answer is awaited."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

import structlog

from daemon.bridge.mqtt.broker import Ticket
from daemon.bridge.mqtt.link import Link
from daemon.bridge.mqtt.messages import Messages, Outgoing
from daemon.bridge.mqtt.told import Told
from daemon.bridge.mqtt.topics import is_topic
from daemon.bridge.records import Delivery
from daemon.clock import Clock
from daemon.redact import printable

log = structlog.get_logger(__name__)
_FINAL = {0x87, 0x90, 0x95, 0x99}  # not authorized, topic name invalid, packet too large, payload format invalid
_TOO_MUCH = 0x97
_Key = tuple[int, int, str]  # run, position and id of a record
_TRIES, _MAX_PAUSE_S = 10, 15  # a record that is refused without a final reason goes so often again, in two minutes


class _Row:
    """A record: settled when the broker has answered all of its messages, and none of them goes again."""

    def __init__(self, rest: Iterator[Outgoing]) -> None:
        self._rest = rest
        self._ways: list[tuple[Outgoing, Ticket]] = []
        self._is_sent, self._tries = False, 0
        self._refused_ns: int | None = None

    def send(self, link: Link) -> bool:
        """Whether there was room for all of it."""
        while not self._is_sent:
            if not link.has_room:
                return False
            message = next(self._rest, None)
            if message is None:
                self._is_sent = True
                break
            ticket = _publish(link, message)
            if not message.is_retained:  # a picture that is too large is no reason to lose its event
                self._ways.append((message, ticket))
        return True

    def send_again(self, link: Link) -> None:
        """The messages of it that were refused."""
        self._tries, self._refused_ns = self._tries + 1, None
        self._ways = [
            (message, ticket if ticket.is_taken else _publish(link, message)) for message, ticket in self._ways
        ]

    def note_refusal(self, now: int) -> None:
        if self._refused_ns is None:
            self._refused_ns = now
            if not self._tries:
                log.warning("the broker refuses a record for now: it goes again", reason=self.refusal)

    def is_due(self, now: int) -> bool:
        """Whether what was refused may go again."""
        return self._refused_ns is not None and now - self._refused_ns >= self._pause_ns

    @property
    def _pause_ns(self) -> int:
        return round(min(_MAX_PAUSE_S, 2.0**self._tries) * 1e9)

    @property
    def open_tickets(self) -> int:
        return sum(not ticket.is_done for _, ticket in self._ways)

    @property
    def is_answered(self) -> bool:
        return self._is_sent and all(ticket.is_done for _, ticket in self._ways)

    @property
    def _refusals(self) -> list[Ticket]:
        return [ticket for _, ticket in self._ways if ticket.is_done and not ticket.is_taken]

    @property
    def refusal(self) -> str | None:
        """Why it is not taken; None where it is."""
        refusals = self._refusals
        final = next((ticket for ticket in refusals if ticket.code in _FINAL), None)
        return (final or refusals[0]).text if refusals else None

    @property
    def is_refused(self) -> bool:
        """It goes again."""
        if not self.is_answered:
            return False
        codes = {ticket.code for ticket in self._refusals}
        return bool(codes) and not codes & _FINAL and (_TOO_MUCH in codes or self._tries < _TRIES)

    @property
    def is_settled(self) -> bool:
        return self.is_answered and not self.is_refused


class Outbox:
    """Used by the thread of the target.

    A record that the broker refuses for now holds up those behind it: it goes again alone, with a growing pause, until
    it is taken or given up. Records that were under way with it keep their answers.
    """

    def __init__(self, link: Link, messages: Messages, told: Told, clock: Clock) -> None:
        self._link, self._messages, self._told, self._clock = link, messages, told, clock
        self._rows: dict[_Key, _Row] = {}
        self._batch: list[tuple[_Key, _Row]] = []
        self._open: list[_Row] = []  # of the batch, those that are not settled
        self._single: _Row | None = None  # the one that goes again
        self._under_way, self._heard_ns = 0, 0

    def begin(self, batch: Sequence[Delivery]) -> None:
        """These are to be sent; those of an earlier batch that come before them are settled."""
        keys = [(row.record.run, row.record.position, row.record.id) for row in batch]
        self._rows = {key: row for key, row in self._rows.items() if key[:2] >= keys[0][:2]}
        for key, delivery in zip(keys, batch, strict=True):
            if key not in self._rows:
                self._rows[key] = _Row(self._messages.of(delivery, self._told.beside(delivery)))
        self._batch = [(key, self._rows[key]) for key in keys]
        self._open = [row for _, row in self._batch]
        if not self._under_way:
            self._heard_ns = self._clock.monotonic_ns()

    def work(self) -> None:
        """Look at the answers, and send what there is room for."""
        self._open = [row for row in self._open if not row.is_settled]
        refused = next((row for row in self._open if row.is_refused), None)
        if self._single is not None and not self._single.is_answered:
            pass
        elif refused is not None:
            self._send_again(refused)
        else:
            self._single = None
            for row in self._open:
                if not row.send(self._link):
                    break
        under_way = sum(row.open_tickets for row in self._open)
        if under_way != self._under_way or self.is_waiting:
            self._under_way, self._heard_ns = under_way, self._clock.monotonic_ns()

    def take(self) -> list[str | None]:
        """The results of the first ones of the batch that are settled; they are forgotten."""
        found: list[str | None] = []
        for key, row in takewhile(lambda pair: pair[1].is_settled, self._batch):
            found.append(None if row.refusal is None else f"the broker refuses it: {row.refusal}")
            self._rows.pop(key, None)
        return found

    @property
    def has_results(self) -> bool:
        return self._batch[0][1].is_settled

    @property
    def is_done(self) -> bool:
        """All of the batch is settled."""
        return not self._open

    @property
    def is_waiting(self) -> bool:
        """The first record that is not settled goes again later."""
        return bool(self._open) and self._open[0].is_refused

    @property
    def refusal(self) -> str | None:
        """Why the first record that is not settled is not taken."""
        return self._open[0].refusal if self._open else None

    @property
    def silence_ns(self) -> int:
        """Since when no answer has come, or nothing could be sent."""
        return self._clock.monotonic_ns() - self._heard_ns

    def _send_again(self, row: _Row) -> None:
        now = self._clock.monotonic_ns()
        row.note_refusal(now)
        is_free = self._single is not None and self._single is not row and self._single.refusal is None
        if (is_free or row.is_due(now)) and self._link.has_room:
            self._single = row
            row.send_again(self._link)


def _publish(link: Link, row: Outgoing) -> Ticket:
    if not is_topic(row.topic):
        ticket = Ticket()
        ticket.settle(0x90, f"{printable(row.topic[:80])!r} is no topic")
        return ticket
    return link.publish(row.topic, row.body, qos=row.qos, retain=row.is_retained, more=row.properties)
