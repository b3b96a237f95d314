"""As on the wire."""

from __future__ import annotations

from collections.abc import Sequence

from daemon.bridge.formats.port import Formatter
from daemon.bridge.records import Encoded, Figure, Record, RecordKind

_ALL: frozenset[RecordKind] = frozenset(("event", "status", "clip", "loss"))


class _AsOnTheWire:
    kinds = _ALL

    def has(self, record: Record) -> bool:  # noqa: ARG002 - it has something for all
        return True

    def record(self, record: Record) -> Sequence[Encoded]:
        return (Encoded(record.body),)

    def figure(self, figure: Figure) -> Sequence[Encoded]:
        content_type = "application/json" if figure.body[:1] == b"{" else "application/vnd.msgpack"
        return (Encoded(figure.body, content_type),)


def formatter(name: str) -> Formatter:  # noqa: ARG001 - it has one form
    """See `daemon.bridge.formats.port.formatter`."""
    return _AsOnTheWire()
