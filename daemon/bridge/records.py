"""Records, which every target is told, and figures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import msgspec

from daemon.bridge.messages import Loss, Notice
from lookout.messages import Clip, Detections, Event

RecordKind = Literal["event", "status", "clip", "loss"]
_TYPES: dict[RecordKind, type[Any]] = {"event": Event, "status": Notice, "clip": Clip, "loss": Loss}
_DECODERS = {kind: msgspec.json.Decoder(cls) for kind, cls in _TYPES.items()}


@dataclass(frozen=True)
class Entry:
    """A record before it has its place in the spool; see there."""

    kind: RecordKind
    daemon: str
    source: str
    id: str
    at: int
    body: bytes


@dataclass(frozen=True)
class Record:
    """A message that every target is told once at least, if it wants it.

    Attributes:
        run: of the spool, ms since 1970 when it was opened; it grows, also where an earlier spool was lost.
        position: in the spool; grows by one. `run` and `position` together are never used twice.
        kind: of `message`: an event of the wire, a notice, a clip, a loss.
        daemon: its name in the bridge.
        source: id; empty if it is about none.
        id: unique for ever, and the same when the record is sent again.
        at: UTC ns, when it happened.
        body: the message as JSON.
    """

    run: int
    position: int
    kind: RecordKind
    daemon: str
    source: str
    id: str
    at: int
    body: bytes

    @cached_property
    def message(self) -> Event | Notice | Clip | Loss:
        """`body` as a struct of `lookout.messages` or `daemon.bridge.messages`.

        Raises:
            msgspec.MsgspecError: it does not fit.
        """
        found: Event | Notice | Clip | Loss = _DECODERS[self.kind].decode(self.body)
        return found


@dataclass(frozen=True)
class Picture:
    """The picture of an event, or why there is none.

    Attributes:
        jpeg: None without one.
        reason: None with one.
    """

    jpeg: bytes | None
    reason: str | None = None


@dataclass(frozen=True)
class Delivery:
    """A record for one target.

    Attributes:
        picture: None where the target wants none.
        is_repeated: it may have arrived before: the bridge or the broker was away before it was confirmed.
    """

    record: Record
    picture: Picture | None = None
    is_repeated: bool = False


@dataclass(frozen=True)
class Figure:
    """The newest detections of a source, which are told once at most.

    Attributes:
        daemon: its name in the bridge.
        body: the message as JSON or MessagePack, as it came.
    """

    daemon: str
    source: str
    message: Detections
    body: bytes


@dataclass(frozen=True)
class Encoded:
    """A record or a figure, written down.

    Attributes:
        content_type: of `body`, such as application/json.
        attributes: of the envelope, for brokers that have headers: CloudEvents' in binary mode, for example.
        suffix: of a topic, where the format has topics of its own (ONVIF's, Frigate's); empty otherwise.
    """

    body: bytes
    content_type: str = "application/json"
    attributes: tuple[tuple[str, str], ...] = ()
    suffix: str = ""
