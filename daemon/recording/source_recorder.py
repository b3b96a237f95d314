"""One source into one store: what is in its ring is written, released or lost, and counted."""

from __future__ import annotations

import os
import secrets
from collections import Counter, deque
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from daemon.recording.assembly import Assembler, Break, Chunk, Place, boot_of, times_of
from daemon.recording.causes import LASTING, Cause
from daemon.recording.clips import Claim, Clip, Clips, ClipsState
from daemon.recording.errors import StoreError
from daemon.recording.ring_layout import HEAD_BYTES
from daemon.recording.ring_reader import RingReader
from daemon.recording.source_files import Covered, SourceFiles
from daemon.recording.tracks.placing import TrackPlacer
from daemon.recording.tracks.records import TrackingSettings

if TYPE_CHECKING:
    from daemon.recording.open_store import OpenStore

_LATE_NS = 10_000_000_000  # an event may come so long after what it was seen in
_SETTLED_NS = 2_000_000_000  # most come sooner: a clip is told as ready then
_STALL_NS = 2_000_000_000
_STALL_PERIODS = 4
_IDLE_NS = 10_000_000_000  # a file that gets nothing for so long is closed
_FULL_SHARE = 0.7  # of a ring: what no event wants yet goes, although one might
_READ_BYTES = 32 << 20  # of one ring in a turn
_DUE_NS = 1_100_000_000  # packets wait so long, and then a whole chunk is there as a rule,
_DUE_SHARE = 0.2  # or until they fill so much of a ring


class Settings(msgspec.Struct, frozen=True, array_like=True):
    """How a source is recorded.

    Attributes:
        continuous: everything, not just what events want.
        pre, post, longest: of clips, ns.
        max_bytes: of its files in this store; None without a limit of its own.
        same_stream: events and boxes are of the stream that is recorded.
        tracking: how the source is tracked; None if it is not.
    """

    continuous: bool
    pre: int
    post: int
    longest: int
    max_bytes: int | None = None
    same_stream: bool = True
    tracking: TrackingSettings | None = None


class Account(msgspec.Struct, frozen=True, array_like=True):
    """Packets received are those written, released, lost and waiting.

    Attributes:
        recorded_ns, gap_ns: of the timeline, since the daemon began.
        cause: why nothing is recorded now; None while it is.
    """

    source: str
    written: int
    released: int
    lost: dict[str, int]
    waiting_bytes: int
    recorded_ns: int
    gap_ns: dict[str, int]
    cause: str | None
    detail: str | None


class _Progress(msgspec.Struct):
    """The state that the next process must know; it lies in the ring.

    Attributes:
        ring: names it: numbers of packets begin anew in another one.
        covered: None as long as the store was never open.
    """

    ring: str
    place: Place
    covered: Covered | None
    written: int
    released: int
    lost: dict[str, int]
    clips: ClipsState


class _Held(NamedTuple):
    """An item that is not decided yet, and how far the stream has come with it."""

    item: Chunk | Break
    place: Place


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Progress).decode


class SourceRecorder:
    """One thread uses it.

    Args:
        ring: the descriptor of its ring.
        instance: id of the daemon's run.
        boot_id: of the machine's.

    Attributes:
        files: what it has written.
        clips: what events want.
        tracks: what was seen in the pictures.
    """

    def __init__(self, source: str, ring: int, settings: Settings, instance: str, boot_id: str) -> None:
        self._settings, self._instance, self._boot_id = settings, instance, boot_id
        self._ring = RingReader(ring)
        self._room = os.fstat(ring).st_size - HEAD_BYTES
        known = _decode(self._ring.state) if self._ring.state else None
        self._ring_id = known.ring if known else secrets.token_hex(4)
        self.files = SourceFiles(source, known.covered if known else None, f"{instance}.{self._ring_id}", boot_id)
        self._at = self._tail = self._ring.tail
        self._place = known.place if known else Place()  # at the tail
        self._assembler = Assembler(msgspec.structs.replace(self._place))
        self._written, self._released = (known.written, known.released) if known else (0, 0)
        self._lost = Counter[str](known.lost if known else {})
        self.clips = Clips(settings.pre, settings.post, settings.longest, known.clips if known else None)
        self._held: deque[_Held] = deque()
        self._skip_below = 0  # packets before it are in files
        self._due_boot, self._turned_at = 0, self._at  # ns; where the last turn has read to
        self.tracks = TrackPlacer(source, same_stream=settings.same_stream, tracking=settings.tracking)

    # --- what others say -------------------------------------------------------------------------------------------

    @property
    def source(self) -> str:
        return self.files.source

    @property
    def max_bytes(self) -> int | None:
        return self._settings.max_bytes

    def begin(self, to: OpenStore, now: int) -> None:
        """The store is open, perhaps again."""
        self._skip_below = max(self._skip_below, self.files.begin(to, now))
        self._commit()
        self.tracks.begin(to, now, self._instance, self._boot_id)

    def let_go(self) -> None:
        """The store is not to be touched any more."""
        self.files.detach()
        self.tracks.let_go()

    def configure(self, settings: Settings) -> None:
        self._settings = settings
        self.clips.configure(settings.pre, settings.post, settings.longest)
        self.tracks.configure(same_stream=settings.same_stream, tracking=settings.tracking)

    def note(self, at: int, cause: Cause, detail: str | None) -> None:
        """Nothing comes from then on; UTC ns."""
        self.files.note(at, cause, detail)

    def claim(self, claim: Claim, now: int, now_boot: int) -> Clip:
        """An event wants what is around it; UTC and BOOTTIME ns. The next process knows it as well, from here on."""
        self._read()  # its picture may be there; a turn is due no later for that
        self._assembler.assume_offset(now - now_boot)  # no packet may have told it
        clip = self.clips.add(claim.event, self._seen_at(claim, now_boot))
        self._commit()
        return clip

    def times_of(self, clip: Clip) -> tuple[int, int]:
        """The begin and end of a clip, UTC ns; see `assembly.times_of`."""
        return times_of(self._assembler.place, clip.begin, clip.end)

    # --- a turn ----------------------------------------------------------------------------------------------------

    def is_due(self, now_boot: int) -> bool:
        """Whether a turn is worth its while."""
        return now_boot >= self._due_boot or self._has_come_much

    def take(self, now_boot: int) -> None:
        """Take what is in the ring for a turn, without touching the store."""
        is_much = self._has_come_much
        self._read()
        waits, last = self._assembler.waits_since, self._assembler.waiting_boot
        if waits is not None and (is_much or now_boot - waits >= _DUE_NS):
            self._hold(self._assembler.cut())
        if last is not None and now_boot - last > max(_STALL_NS, _STALL_PERIODS * self._assembler.place.period):
            self._hold(self._assembler.flush())
        waits = self._assembler.waits_since
        self._due_boot, self._turned_at = (now_boot if waits is None else waits) + _DUE_NS, self._at
        self._note_waiting()

    def turn(self, to: OpenStore, now_boot: int) -> list[Clip]:
        """Write and release what is due.

        Returns:
            Clips that are over.

        Raises:
            StoreError: nothing more can be written now; what was not stays in the ring.
        """
        self._mark(to)
        try:
            while self._held and self._decide(to, now_boot):
                self._pass()
            if not self._held and now_boot - self._place.end_boot > _IDLE_NS:
                self.files.close(to, "stalled")
        finally:
            self._commit()
        self._note_waiting()
        first = self._held[0].item if self._held else None
        decided = first.begin_boot if isinstance(first, Chunk) else now_boot
        self.tracks.turn(to, now_boot, min(decided, self._assembled_boot(now_boot)), self.files.path)
        return list(self.clips.take_over(min(decided, now_boot - _SETTLED_NS)))

    def finish(self, to: OpenStore, now: int, cause: Cause, detail: str, at: int) -> list[Clip]:
        """The last turn: write what is wanted, and close the file. The index is not told: see `SourceFiles.untold`.

        Args:
            cause, detail: why nothing more is recorded.
            at: since when, UTC ns.

        Returns:
            Clips that are over by that.

        Raises:
            StoreError: it cannot be written, and stays in the ring.
        """
        self._hold(self._assembler.flush())
        self._mark(to)
        try:
            while self._held:
                self._decide(to, None)
                self._pass()
        finally:
            self.files.note_waiting(None)
            self.files.close(to, cause if cause in LASTING else "stopped")
            self.files.note(min(at, now), cause, detail)
            self._commit()
        self.tracks.finish(to)
        return list(self.clips.take_over(None))

    def account(self, now: int) -> Account:
        """As of the last turn."""
        (recorded_ns, gap_ns), gap = self.files.figures(now), self.files.gap_at(now)
        waiting = self._ring.head - self._tail
        counts = self._written, self._released, dict(self._lost), waiting, recorded_ns, gap_ns
        return Account(self.source, *counts, gap.cause if gap else None, gap.detail if gap else None)

    def close(self) -> None:
        """Without a last turn."""
        self._held.clear()
        self.let_go()
        self._ring.close()

    # --- decisions -------------------------------------------------------------------------------------------------

    @property
    def _has_come_much(self) -> bool:
        """Since the last turn, whatever claims have read of it."""
        return bool(self._ring.head - self._turned_at > _DUE_SHARE * self._room)

    def _read(self) -> None:
        for record in self._ring.read(self._at, _READ_BYTES):
            if items := self._assembler.add(record):
                self._hold(items)
            self._at = record.end

    def _hold(self, items: Iterable[Chunk | Break]) -> None:
        for item in items:
            self._held.append(_Held(item, self._assembler.place))

    def _note_waiting(self) -> None:
        chunks = (row.item.begin for row in self._held if isinstance(row.item, Chunk))
        self.files.note_waiting(next(chunks, self._assembler.waits_since_utc))

    def _pass(self) -> None:
        """The first of what is held is decided."""
        item, self._place = self._held.popleft()
        self._tail = max(self._tail, item.ring_end)

    def _decide(self, to: OpenStore, now_boot: int | None) -> bool:
        """Write or release the first of what is held; False if it must wait.

        Args:
            now_boot: None at the end, when nothing waits.
        """
        item = self._held[0].item
        if isinstance(item, Break):
            self._break(to, item)
            return True
        if item.number < self._skip_below:
            self._written += len(item.samples)
            self.clips.note_written(item.begin_boot, item.end_boot)
            return True
        if self._settings.continuous:
            self._write(to, item)
            return True
        end_boot, is_whole = self._group_end()
        if self.clips.wants(item.begin_boot, end_boot):
            self._write(to, item)
            return True
        if now_boot is not None and not self._may_go(now_boot, end_boot, is_whole=is_whole):
            return False
        self._released += len(item.samples)
        self.files.close(to, "no_event")
        self.files.note(item.begin, "no_event")
        return True

    def _may_go(self, now_boot: int, end_boot: int, *, is_whole: bool) -> bool:
        if self._at - self._tail > _FULL_SHARE * self._room:
            return True
        return is_whole and now_boot - end_boot > self.clips.pre + _LATE_NS

    def _group_end(self) -> tuple[int, bool]:
        """BOOTTIME ns at which the pictures end that need the first chunk, and whether all of them are here."""
        end = 0
        for number, row in enumerate(self._held):
            if isinstance(row.item, Break) or (number and row.item.key):
                return end, True
            end = row.item.end_boot
        return end, False

    def _break(self, to: OpenStore, item: Break) -> None:
        self.files.close(to, item.cause or "stream")
        if item.cause is None:
            return
        cause, detail = item.cause, item.detail
        if cause == "clock":
            self.files.set_clock(item.at, detail)
            return
        if cause == "disk_slow":
            cause, detail = to.trouble_at(item.at) or (cause, detail)
        elif cause == "network":
            self.files.begin_timeline()
        self.files.note(item.at, cause, detail)
        if item.packets:
            self._lost[cause] += item.packets

    def _write(self, to: OpenStore, chunk: Chunk) -> None:
        claimed = self.clips.wants(chunk.begin_boot, chunk.end_boot)
        if self.files.write(to, chunk, claimed=claimed):
            self._written += len(chunk.samples)
            self.clips.note_written(chunk.begin_boot, chunk.end_boot)
            if head := self.files.head:
                self.tracks.note_written(self.files.path or "", head, chunk)
        else:
            self._lost["codec"] += len(chunk.samples)

    def _mark(self, to: OpenStore) -> None:
        """Mark what is written already of clips, now or in the next turn: a locked index keeps no video waiting."""
        with suppress(StoreError):
            for clip in [*self.clips.unmarked]:
                if self._settings.continuous:
                    begin, end = self.times_of(clip)
                    self.files.claim(begin, end)
                    to.claim(self.source, begin, end, self.files.path)
                self.clips.note_marked(clip)

    def _seen_at(self, claim: Claim, now_boot: int) -> int:
        """When an event was seen, BOOTTIME ns."""
        if claim.pts is None or claim.session is None or not self._settings.same_stream:
            return boot_of(self._assembler.place, claim.at, now_boot)
        for row in reversed(self._held):
            chunk = row.item
            if isinstance(chunk, Chunk) and chunk.stream.session == claim.session:
                return chunk.begin_boot + claim.pts - chunk.samples[0].pts
        waiting = self._assembler.seen_at(claim.session, claim.pts)
        if waiting is not None:
            return waiting
        utc = self.files.utc_of(claim.session, claim.pts)
        return boot_of(self._assembler.place, claim.at if utc is None else utc, now_boot)

    def _assembled_boot(self, now_boot: int) -> int:
        """BOOTTIME ns: all packets that came before are in chunks."""
        if self._at < self._ring.head:
            now_boot = min(now_boot, self._assembler.place.end_boot)
        waits = self._assembler.waits_since
        return now_boot if waits is None else min(now_boot, waits)

    def _commit(self) -> None:
        if self._ring.state and self._tail == self._ring.tail and not self.clips.open:
            return
        counts = self._written, self._released, dict(self._lost)
        covered = None if self.files.is_new else self.files.covered
        progress = _Progress(self._ring_id, self._place, covered, *counts, self.clips.state)
        self._ring.commit(self._tail, _encode(progress))
