"""Records that members of a fleet write for each other: JSON, read by members of other versions.

Readers ignore fields that they do not know. A record that cannot be read is reported once and left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

SCHEMA = "v1"  # part of each key; a change that an older member would read wrongly takes the next number
MemberState = Literal["starting", "ready", "leaving"]


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of a member, as it has measured them itself.

    Attributes:
        detector: pictures a second, of several models the first's.
        decoders: of the GPU: pixels a second by codec; a codec that is not there is decoded on the CPU.
        cpu_decoding: pixels a second for one core.
        cores: CPU cores.
        memory: bytes of the GPU for sources, None without a GPU.
        source_memory: bytes of the GPU that a source takes, by codec, for a picture of 1920x1080.
        sessions: decoder sessions of the GPU, None without a limit.
        models: by name, what a picture costs in pictures of the first; empty where the configuration has `model`.
    """

    detector: float
    decoders: dict[str, float] = {}
    cpu_decoding: float = 60e6
    cores: float = 1.0
    memory: int | None = None
    source_memory: dict[str, int] = {}
    sessions: int | None = None
    models: dict[str, float] = {}


class Endpoints(msgspec.Struct, frozen=True, kw_only=True):
    """Where others reach a member.

    Attributes:
        messages: for subscribers, such as tcp://host:5556.
        server_key: its public CURVE key, None without encryption.
        http: of its API, None without one.
    """

    messages: str
    server_key: str | None = None
    http: str | None = None


class MemberRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A member, as it describes itself. The record is gone when the member's lease ends.

    Attributes:
        release: its version of Lookout.
        labels: such as {"site": "north"}.
        overloaded: it cannot carry what it has, for this reason; its capacity is lowered to what it can.
    """

    release: str
    state: MemberState
    capacity: Capacity
    endpoints: Endpoints
    labels: dict[str, str] = {}
    overloaded: str | None = None


class StreamFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The video of a source, as expected by the operator or seen by its last owner."""

    codec: str = "h264"
    width: int = 1920
    height: int = 1080
    fps: float = 30.0


class SourceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A source of the fleet, as an operator has written it.

    Attributes:
        config: a row of `sources` in the configuration, with ${NAME} for secrets, which the owner fills in.
        affinity: labels that its owner must have.
        priority: where there is not room for all, sources with a lower one wait.
        expected: its video, None if it is not known before the first connection.
    """

    config: dict[str, Any]
    affinity: dict[str, str] = {}
    priority: int = 0
    expected: StreamFormat | None = None


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """Which member is to own a source.

    Attributes:
        member: None if the source waits.
        reason: why it waits, or why it was placed there.
        pinned: an operator has moved it there; it stays while the member can have it.
    """

    member: str | None
    reason: str = ""
    pinned: bool = False


class Ownership(msgspec.Struct, frozen=True, kw_only=True):
    """The claim of a member; gone when the member's lease ends.

    Attributes:
        base: of etcd's epochs; the claim's revision is added.
    """

    member: str
    base: int = 0


class HoldDown(msgspec.Struct, frozen=True, kw_only=True):
    """A member that was lost too often gets only what no other member can take, until this record ends.

    Attributes:
        losses: within an hour.
    """

    losses: int


@dataclass(frozen=True)
class Owned:
    """Attributes:
    member: the owner.
    epoch: higher for each new owner of the source.
    """

    member: str
    epoch: int


@dataclass(frozen=True)
class FleetView:
    """All records at one revision. Mappings are by member or by source.

    Attributes:
        joined: a number for each membership; higher when a member joins again.
        drained: members that get no source, with the reason.
        refused: by source and member: why the member cannot have it.
        seen: videos as their owners saw them.
        losses: members that were lost within the last hour, how often.
        placer: the member that places sources now.
        problems: records that cannot be read: key and reason.
        left: the last membership (as in `joined`) that a member has ended by itself, for an hour. A member that is
            gone, and whose membership is not this one, was lost.
    """

    revision: int
    members: Mapping[str, MemberRecord]
    joined: Mapping[str, int]
    drained: Mapping[str, str]
    sources: Mapping[str, SourceRecord]
    wants: Mapping[str, Want]
    owned: Mapping[str, Owned]
    refused: Mapping[str, Mapping[str, str]]
    seen: Mapping[str, StreamFormat]
    losses: Mapping[str, int]
    held: Mapping[str, HoldDown]
    placer: str | None
    problems: Mapping[str, str]
    left: Mapping[str, int] = field(default_factory=dict)
