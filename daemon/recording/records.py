"""The content of rings, and the facts that files tell of themselves."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from daemon.recording.causes import Cause


class Stream(msgspec.Struct, frozen=True, gc=False):
    """The facts that the packets which follow have in common; see `daemon.sources.port.PacketInfo`.

    Attributes:
        session: of the connection.
    """

    session: str
    codec: str
    extradata: bytes
    time_base: tuple[int, int]
    width: int
    height: int
    turns: int


class StreamRecord(NamedTuple):
    """Another stream begins."""

    stream: Stream
    offset: int
    end: int


class PacketRecord(msgspec.Struct, frozen=True, gc=False):
    """A packet.

    Attributes:
        number: of the packet in its ring, from 0.
        pts, dts: ns on the timeline of the session.
        boot, utc: when it came, ns.
        data: in the ring, until a commit passes it.
        offset, end: in the ring.
    """

    number: int
    pts: int | None
    dts: int | None
    key: bool
    boot: int
    utc: int
    data: memoryview
    offset: int
    end: int


class LostRecord(NamedTuple):
    """Packets for which the ring had no room; the next packet is a key picture.

    Attributes:
        begin, begin_boot, last, last_boot: when the first and the last of them came.
    """

    packets: int
    bytes: int
    begin: int
    begin_boot: int
    last: int
    last_boot: int
    offset: int
    end: int


Record = StreamRecord | PacketRecord | LostRecord


class Sample(msgspec.Struct, frozen=True, gc=False):
    """A packet on its way into a file.

    Attributes:
        pts, dts, duration: ns on the timeline of the session.
        data: as it came, with start codes or lengths.
    """

    pts: int
    dts: int
    duration: int
    key: bool
    data: memoryview


class Gap(msgspec.Struct, frozen=True, order=True, gc=False):
    """A time without video.

    Attributes:
        begin, end: UTC ns.
        detail: what the cause alone does not say, such as why a camera is down.
    """

    begin: int
    end: int
    cause: Cause
    detail: str | None = None


class FileHead(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a file tells from its first byte on.

    Attributes:
        id: 8 random bytes as hexadecimal digits.
        store: the UUID of its store.
        epoch: of the owner, in a fleet.
        stream: with the session.
        base_dts: ns, the session's time at which all its files begin to count.
        first_pts, first_dts: ns.
        instance: id of the daemon's run, and of the ring that its packets came through.
        begin: UTC ns; with `end` of the tail the span on the timeline.
        begin_boot, boot_id: the same by the clock that nobody sets.
        clock_error: ns that `begin` may be off; None if unknown.
        number: of its first packet in the ring.
        previous, previous_chain: the source's file before, in this store.
        since: UTC ns of the first recording of the source in this store.
        covered_until: UTC ns, the end of the span before; `since` if there is none.
        gaps: from there to `begin`, without a hole.
    """

    id: str
    source: str
    store: str
    instance: str
    epoch: int | None = None
    stream: Stream
    base_dts: int
    first_pts: int
    first_dts: int
    begin: int
    begin_boot: int
    boot_id: str
    clock: str = "arrival"
    clock_error: int | None = None
    number: int
    begins_with_key: bool
    previous: str | None = None
    previous_chain: str | None = None
    since: int
    covered_until: int
    gaps: list[Gap] = []

    @property
    def session(self) -> str:
        return self.stream.session


class FragmentRow(NamedTuple):
    """A fragment, as tables have it.

    Attributes:
        offset, size: bytes, from its own box to the end of its samples.
        begin, end: UTC ns.
        pts, duration: ns.
        packets: samples in it.
        key: its first sample is a key picture.
        claimed: an event wants it.
    """

    offset: int
    size: int
    begin: int
    end: int
    pts: int
    duration: int
    packets: int
    key: bool
    claimed: bool


class FileTail(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a file tells at its end.

    Attributes:
        end: UTC ns.
        reason: why it ended.
        chain: of its last fragment.
    """

    end: int
    reason: str
    packets: int
    chain: str
    fragments: list[FragmentRow]


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A file as the index has it: nothing that the file itself does not say.

    Attributes:
        path: within the store.
        begin, end: UTC ns.
        first_pts, last_pts: ns; the latter is the end of the last picture.
        claimed: an event wants some of it.
        reason: None while it has no tail.
    """

    id: str
    path: str
    source: str
    session: str
    begin: int
    end: int
    begin_boot: int
    boot_id: str
    first_pts: int
    last_pts: int
    size: int
    fragments: int
    packets: int
    codec: str
    width: int
    height: int
    claimed: bool
    reason: str | None
    chain: str
    previous: str | None
    since: int
    covered_until: int


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """Video that is kept until somebody unlocks it; a file of its own in the store.

    Attributes:
        begin, end, at: UTC ns.
        by: the name of the token, or of the user.
    """

    id: str
    source: str
    begin: int
    end: int
    reason: str
    by: str
    at: int
