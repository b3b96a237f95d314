"""Records and figures as messages of MQTT."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from daemon.bridge.formats.port import Formatter
from daemon.bridge.mqtt.broker import new_properties
from daemon.bridge.mqtt.told import Beside
from daemon.bridge.mqtt.topics import Topics
from daemon.bridge.records import Delivery, Encoded, Figure
from daemon.redact import printable


@dataclass(frozen=True)
class Outgoing:
    topic: str
    body: bytes
    qos: int
    properties: Properties | None = None
    is_retained: bool = False


class Messages:
    """
    Args:
        qos: of records.
        has_properties: the broker speaks MQTT 5.
    """

    def __init__(self, topics: Topics, format: Formatter, qos: int, *, has_properties: bool) -> None:
        self._topics, self._format, self._qos, self._has_properties = topics, format, qos, has_properties

    def of(self, delivery: Delivery, beside: Iterable[Beside]) -> Iterator[Outgoing]:
        """Those of a record, and before them what stands beside it."""
        record = delivery.record
        message = record.message
        for row in beside:
            yield Outgoing(row.topic, row.body, self._qos, None, row.is_retained)
        base = self._topics.record(record, getattr(message, "owner", None))
        pairs = [("id", record.id), *_trace(message)]
        for encoded in self._format.record(record):
            yield Outgoing(self._topic(base, encoded), encoded.body, self._qos, self._properties(encoded, pairs))

    def of_figure(self, figure: Figure) -> Iterator[Outgoing]:
        base = self._topics.figure(figure.daemon, figure.source, figure.message.owner)
        for encoded in self._format.figure(figure):
            properties = self._properties(encoded, [*_trace(figure.message)])
            yield Outgoing(self._topic(base, encoded), encoded.body, 0, properties)

    def _topic(self, base: str, encoded: Encoded) -> str:
        return f"{self._topics.prefix}/{encoded.suffix}" if encoded.suffix else base

    def _properties(self, encoded: Encoded, pairs: list[tuple[str, str]]) -> Properties | None:
        if not self._has_properties:
            return None
        found = new_properties(PacketTypes.PUBLISH)
        found.ContentType = encoded.content_type
        if rows := [*encoded.attributes, *pairs]:
            found.UserProperty = [(printable(name), printable(value)) for name, value in rows]
        return found


def _trace(message: object) -> Iterator[tuple[str, str]]:
    found = getattr(message, "traceparent", None)
    if isinstance(found, str):
        yield "traceparent", found
