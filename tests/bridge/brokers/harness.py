"""What the contract of targets needs of a broker, and records to deliver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from daemon.bridge.port import Connection
from daemon.bridge.records import Delivery, Record
from daemon.bridge.targets.opening import TargetContext, open_target
from daemon.clock import SystemClock
from daemon.config.targets import TargetConfig
from lookout.messages import Event

WRONG_PASSWORD = "n0t-the-passw0rd"  # noqa: S105 - and shown nowhere


@dataclass(frozen=True)
class Arrived:
    """A message as a client of the broker's own reads it.

    Attributes:
        id: of the record, as the broker has it beside the body.
        source: as it is in the topic, the key, or a field.
    """

    id: str
    body: bytes
    source: str


class BrokerHarness(Protocol):
    """A broker, and a target that delivers to it."""

    def target(self) -> TargetConfig:
        """As the configuration would have it."""
        ...

    def unreachable(self) -> TargetConfig:
        """Of a port where nobody listens."""
        ...

    def with_wrong_password(self) -> TargetConfig:
        """Of a broker that refuses `WRONG_PASSWORD`."""
        ...

    def start(self) -> None: ...

    def kill(self) -> None:
        """At once, as by kill -9; data that it has confirmed are there when it is started again."""
        ...

    def pause(self) -> None:
        """It hangs: its connections stay open, and nothing is answered."""
        ...

    def resume(self) -> None: ...

    def read(self) -> Sequence[Arrived]:
        """All records that it has, of all sources, in the order in which they came."""
        ...

    def too_large(self) -> int | None:
        """Bytes of a body that the broker never takes; None if there is no such limit."""
        ...

    def close(self) -> None: ...


@dataclass
class TextMemory:
    """The texts of a target, in memory."""

    texts: dict[str, str] = field(default_factory=dict)

    def read(self) -> Mapping[str, str]:
        return dict(self.texts)

    def write(self, key: str, value: str | None) -> None:
        if value is None:
            self.texts.pop(key, None)
        else:
            self.texts[key] = value


def context(id: str = "0b51d9a7") -> TargetContext:
    return TargetContext(id=id, daemons=("here",), memory=TextMemory(), clock=SystemClock())


def opened(target: TargetConfig) -> Connection:
    return open_target(target, context())


def event(position: int, *, source: str = "door", padding: int = 0) -> Event:
    return Event(
        id=f"5f0c2d1e-{position}", number=position, instance="5f0c2d1e", source=source, session="a90b44c7",
        index=position, kind="zone", phase="entered", seq=position, pts=None, at=1_795_183_201_000_000_000 + position,
        confirmed_seq=position, confirmed_at=1_795_183_201_000_000_000 + position, rule="porch" + "h" * padding,
        track=7, label="person", box=(10.0, 20.5, 40.0, 90.0),
    )  # fmt: skip


def delivery(position: int, *, source: str = "door", padding: int = 0, is_repeated: bool = False) -> Delivery:
    """An event; with padding its body is so much longer."""
    message = event(position, source=source, padding=padding)
    body = msgspec.json.encode(message)
    record = Record(
        run=1_795_183_200_000, position=position, kind="event", daemon="here", source=source, id=message.id,
        at=message.at, body=body,
    )  # fmt: skip
    return Delivery(record, is_repeated=is_repeated)


def deliveries(count: int, *, first: int = 1, sources: Sequence[str] = ("door",), padding: int = 0) -> list[Delivery]:
    """Of sources in turn."""
    return [
        delivery(number, source=sources[number % len(sources)], padding=padding)
        for number in range(first, first + count)
    ]


def secret_file(folder: Path, text: str) -> Path:
    """A file that holds a secret, with the line break that an editor leaves."""
    file = folder / "secret"
    file.write_text(f"{text}\n")
    return file
