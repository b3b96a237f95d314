"""What a bridge would hand to a target: records, pictures, states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from time import monotonic, sleep
from typing import Any

import msgspec

from daemon.bridge.messages import Loss, Notice
from daemon.bridge.port import Connection
from daemon.bridge.records import Delivery, Figure, Picture, Record, RecordKind
from daemon.bridge.states import DaemonState, SourceState, StateBoard, States
from daemon.bridge.targets.opening import TargetContext
from daemon.clock import Clock, SystemClock
from lookout.messages import (
    Counts,
    Detections,
    Dropped,
    Event,
    FrameClock,
    ImageSize,
    Latency,
    Metrics,
    Model,
    Occupancy,
    Owner,
    ProcessMetrics,
    PublisherMetrics,
    SourceMetrics,
    State,
    Status,
    Total,
)
from tests.support.daemon import PATIENCE_S

AT = 1_795_183_211_473_912_004


def tended(connection: Connection, board: StateBoard, until: Callable[[], object]) -> None:
    """Tend a connection, as the bridge does, until something is true."""
    end = monotonic() + PATIENCE_S
    while not until():
        if monotonic() > end:
            raise AssertionError("it does not come")
        connection.tend(board)
        sleep(0.01)


def tended_for(connection: Connection, board: StateBoard, rounds: int, between: Callable[[], object] = int) -> None:
    """Tend it so often, which takes a moment for what other threads do."""
    for _ in range(rounds):
        connection.tend(board)
        sleep(0.02)
        between()


class Kept:
    """The memory of a target that outlives its connections."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def read(self) -> Mapping[str, str]:
        return dict(self.texts)

    def write(self, key: str, value: str | None) -> None:
        if value is None:
            self.texts.pop(key, None)
        else:
            self.texts[key] = value


class Later(SystemClock):
    """The machine's clock, some seconds on."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self._still_ns: int | None = None

    def pass_by(self, seconds: float) -> None:
        self.ahead_s += seconds

    def stand_still(self) -> None:
        """From now on only `pass_by` moves it."""
        self._still_ns = SystemClock.monotonic_ns()

    def monotonic_ns(self) -> int:
        now = SystemClock.monotonic_ns() if self._still_ns is None else self._still_ns
        return now + round(self.ahead_s * 1e9)


class Shown(StateBoard):
    """A board that a test fills."""

    def show(
        self, sources: Iterable[SourceState], *, down: Iterable[str] = (), is_complete: bool = True, fps: float = 25.0
    ) -> None:
        rows = {(row.daemon, row.source): row for row in sources}
        names = {row.daemon for row in rows.values()} | {"here"} | set(down)
        daemons = {
            name: DaemonState(name, name not in set(down), None, metrics([*(s for d, s in rows if d == name)], fps))
            for name in names
        }
        self._states = States(self._states.version + 1, daemons, rows, is_complete)


def context(memory: Kept | None = None, *, id: str = "bridge-1", daemons: tuple[str, ...] = ("here",),
            clock: Clock | None = None) -> TargetContext:  # fmt: skip
    return TargetContext(id, daemons, memory or Kept(), clock or SystemClock())


def event(number: int, source: str = "door", **keys: Any) -> Event:
    found = Event(
        id=f"5f0c2d1e-{number}", number=number, instance="5f0c2d1e", source=source, session="1", index=number,
        kind="zone", phase="entered", seq=number, pts=None, at=AT + number, confirmed_seq=number,
        confirmed_at=AT + number, rule="yard", label="person", track=number,
    )  # fmt: skip
    return msgspec.structs.replace(found, **keys)


def delivery(message: Event, *, daemon: str = "here", jpeg: bytes | None = None, is_repeated: bool = False) -> Delivery:
    record = Record(
        run=1, position=message.number, kind="event", daemon=daemon, source=message.source, id=message.id,
        at=message.at, body=msgspec.json.encode(message),
    )  # fmt: skip
    return Delivery(record, Picture(jpeg) if jpeg else None, is_repeated)


def encoded_record(kind: RecordKind, message: Notice | Loss, source: str) -> Record:
    return Record(
        run=1, position=1, kind=kind, daemon="here", source=source, id=message.id, at=message.at,
        body=msgspec.json.encode(message),
    )  # fmt: skip


def deliveries(first: int, count: int, source: str = "door") -> list[Delivery]:
    return [delivery(event(number, source)) for number in range(first, first + count)]


def repeated(rows: Iterable[Delivery]) -> list[Delivery]:
    return [replace(row, is_repeated=True) for row in rows]


def source(
    name: str = "door", *, daemon: str = "here", state: State = "up", inside: int = 0, owner: Owner | None = None,
    totals: Iterable[Total] = (), zone: tuple[str | None, str | None] = ("yard", "person"),
) -> SourceState:  # fmt: skip
    status = Status(instance="5f0c2d1e", source=name, session="1", index=0, at=AT, state=state, owner=owner)
    first = Total(zone[0], "zone", "entered", None, zone[1], 4)
    if zone[0] is None:
        first = Total(None, "object", "appeared", None, zone[1], 4)
    rows = [first, *totals]
    occupancy = [Occupancy(*zone, inside)] if inside else []
    counts = Counts(
        instance="5f0c2d1e", source=name, index=0, at=AT, since=AT, totals=rows, occupancy=occupancy, owner=owner
    )
    return SourceState(daemon, name, status, counts)


def figure(seq: int, source: str = "door") -> Figure:
    message = Detections(
        instance="5f0c2d1e", source=source, session="1", seq=seq, index=seq, pts=None, captured_at=AT,
        clock=FrameClock("arrival"), image=ImageSize(64, 48), model=Model("m", "0", "fp32", "fake"), detections=[],
        latency=Latency(0, 0, 0, 0, 0, 0), dropped=Dropped(),
    )  # fmt: skip
    return Figure("here", source, message, msgspec.json.encode(message))


def metrics(sources: Iterable[str], fps: float) -> Metrics:
    row = SourceMetrics(
        state="up", captured_fps=fps, published_fps=fps, captured=1, published=1, dropped=Dropped(), in_flight=0,
        latency=None,
    )  # fmt: skip
    return Metrics(
        instance="5f0c2d1e", index=0, at=AT, interval_s=5, uptime_s=5, fps=fps, latency=None,
        sources=dict.fromkeys(sources, row), process=msgspec.convert(_zeros(ProcessMetrics), ProcessMetrics), gpus=None,
        gpus_reason="none", publisher=msgspec.convert(_zeros(PublisherMetrics), PublisherMetrics),
    )  # fmt: skip


def _zeros(cls: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: 0 for field in msgspec.structs.fields(cls) if field.required}
