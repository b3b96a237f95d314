"""The port of a format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from daemon.bridge.records import Encoded, Figure, Record, RecordKind

if TYPE_CHECKING:
    from daemon.config.targets import Format


class Formatter(Protocol):
    """Writes records and figures down. It holds no state: the same record gives the same bytes."""

    @property
    def kinds(self) -> frozenset[RecordKind]:
        """The records that it can write; a target leaves others out, and counts them as filtered."""
        ...

    def has(self, record: Record) -> bool:
        """Whether it has something for a record of one of these kinds; one that it has nothing for counts as filtered.

        Raises:
            msgspec.MsgspecError: the record cannot be read.
        """
        ...

    def record(self, record: Record) -> Sequence[Encoded]:
        """One message or several; they are confirmed together. Empty exactly where it has nothing."""
        ...

    def figure(self, figure: Figure) -> Sequence[Encoded]:
        """Likewise of a frame; empty where the format has no frames."""
        ...


def formatter(name: Format) -> Formatter:
    """The format of a name; its module is loaded here."""
    from importlib import import_module

    module = import_module(f"daemon.bridge.formats.{name.partition('-')[0]}")
    found: Formatter = module.formatter(name)
    return found
