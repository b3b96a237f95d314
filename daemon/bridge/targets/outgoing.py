"""A batch of records as the messages of a broker, and which of them it has confirmed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from daemon.bridge.formats.port import Formatter
from daemon.bridge.naming import named
from daemon.bridge.records import Delivery, Encoded, Figure, Record

FIGURES = "detections"  # {kind} of figures


@dataclass(frozen=True)
class Outgoing:
    """One message.

    Attributes:
        place: of its record in the batch.
        topic: or subject, or stream.
        id: unique, and the same when it is sent again: the record's, with `#2` and so on behind it for its further
            messages.
    """

    place: int
    topic: str
    id: str
    record: Record
    encoded: Encoded


class Batch:
    """
    Args:
        template: of the topic, with {kind}, {source} and {daemon}.
        escape: makes a part of the topic of a name.

    Attributes:
        messages: of all records that the format can write, in their order.
    """

    def __init__(
        self, deliveries: Sequence[Delivery], formatter: Formatter, template: str, escape: Callable[[str], str]
    ) -> None:
        self._waits = [0] * len(deliveries)  # messages of each record that are not confirmed yet
        self._refusals: list[str | None] = [None] * len(deliveries)
        self.messages: list[Outgoing] = []
        for place, delivery in enumerate(deliveries):
            record = delivery.record
            try:
                parts = formatter.record(record)
            except ValueError as error:  # msgspec's errors are such
                self._refusals[place] = f"it cannot be written: {error}"
                continue
            topic = named(template, kind=record.kind, source=escape(record.source), daemon=escape(record.daemon))
            self._waits[place] = len(parts)
            for number, part in enumerate(parts, 1):
                id = record.id if number == 1 else f"{record.id}#{number}"
                self.messages.append(Outgoing(place, topic, id, record, part))

    @property
    def is_settled(self) -> bool:
        return not any(self._waits)

    def confirm(self, message: Outgoing) -> None:
        """The broker has this message; call it once for each."""
        self._waits[message.place] -= 1

    def refuse(self, message: Outgoing, reason: str) -> None:
        """The broker will never take it; likewise."""
        self._refusals[message.place] = reason
        self.confirm(message)

    def results(self) -> list[str | None]:
        """Of the first records, up to the first that is not settled, as `Connection.deliver` has them."""
        settled = next((place for place, waits in enumerate(self._waits) if waits), len(self._waits))
        return self._refusals[:settled]


def figures_of(
    figures: Sequence[Figure], formatter: Formatter, template: str, escape: Callable[[str], str], failed: set[int]
) -> Iterator[tuple[int, str, Encoded]]:
    """The place of the figure, and the topic, of each message.

    Args:
        failed: gets the places of those that cannot be written.
    """
    for place, figure in enumerate(figures):
        topic = named(template, kind=FIGURES, source=escape(figure.source), daemon=escape(figure.daemon))
        try:
            parts = formatter.figure(figure)
        except ValueError:
            failed.add(place)
            continue
        for part in parts:
            yield place, topic, part
