"""All sources of one store, turn by turn; what to do while the store cannot be used."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from daemon.clock import Clock, boot_id, boottime_ns
from daemon.errors import LookoutError
from daemon.recording.absence import Absence, note_absent
from daemon.recording.causes import Cause
from daemon.recording.claimed_times import ClaimedTimes
from daemon.recording.clips import Claim, Clip
from daemon.recording.errors import StoreError
from daemon.recording.footage_age import FootageAge
from daemon.recording.open_store import OpenStore, Troubles, open_store
from daemon.recording.retention import Rules
from daemon.recording.source_files import SourceFiles, keep_books
from daemon.recording.source_recorder import Account, Settings, SourceRecorder
from daemon.recording.tracks.intake import TrackIntake
from daemon.recording.tracks.open_tracks import LeftTracks

log = structlog.get_logger(__name__)
_SECOND_NS = 1_000_000_000
_FIRST_PAUSE_NS, _MAX_PAUSE_NS = _SECOND_NS // 2, 5 * _SECOND_NS
_HUNG_S = 5.0  # a turn that took longer was a hang of the file system
_BOOKS_NS = 5 * _SECOND_NS
_FINISH_NS = _SECOND_NS // 4  # in which tracks that were left behind get their end, each time
_LOST = "the last video of a source is not recorded"
_MAX_LEAVING = 64  # sources that were removed while the store is away: their rings need memory


@dataclass(frozen=True)
class StorePlace:
    """Where a store is, and what may be in it.

    Attributes:
        uuid: as it was found before; None at the first time.
        down_since: UTC ns, when the process before ended; None for the first.
    """

    path: str
    must_be_mount: bool
    rules: Rules
    uuid: str | None = None
    down_since: int | None = None


class _Leaving(NamedTuple):
    """A source that is recorded no more since a time, UTC ns, and waits for its store to write the rest."""

    source: SourceRecorder
    cause: Cause
    detail: str
    at: int


class _Untold(NamedTuple):
    """Files of a source that is recorded no more, up to a time, UTC ns. The index may not know them yet."""

    files: SourceFiles
    at: int


class _Departed(NamedTuple):
    """Sources that are recorded no more."""

    leaving: deque[_Leaving]
    untold: deque[_Untold]


class Recorder:
    """One thread uses it.

    Args:
        instance: id of the daemon's run.
        on_clip: told of a clip that begins or is over, with its source.

    Attributes:
        trouble: why the store cannot be used; None if it can.
        uuid: of the store, once it was found.
    """

    def __init__(
        self,
        place: StorePlace,
        instance: str,
        clock: Clock,
        on_clip: Callable[[SourceRecorder, Clip, bool], None],
        boottime: Callable[[], int] = boottime_ns,
    ) -> None:
        self._place, self._instance, self._on_clip = place, instance, on_clip
        self._clock, self._boottime = clock, boottime
        self._sources: dict[str, SourceRecorder] = {}
        self._departed = _Departed(deque(), deque())
        self._to: OpenStore | None = None
        self._troubles = Troubles()
        self.trouble: StoreError | None = None
        self._trouble_since = self._retry_at = 0
        self._pause = _FIRST_PAUSE_NS
        self._books_at = 0
        self._age = FootageAge(clock.utc_ns(), self._boottime())
        self.uuid = place.uuid
        self._tracks: TrackIntake | None = None
        self._left_tracks = LeftTracks()
        self._claimed = ClaimedTimes()
        self._absence: Absence | None = None
        if place.down_since is not None:
            self._troubles.add(place.down_since, clock.utc_ns(), "recorder_down")

    # --- sources ---------------------------------------------------------------------------------------------------

    def record(self, source: str, settings: Settings, ring: int) -> None:
        """
        Raises:
            RingError, OSError: it has no ring.
        """
        if self._to is not None:
            self.forget(source, "off", "it was added again")
        elif source in self._sources:  # of the same ring
            self._sources.pop(source).close()
        recorder = SourceRecorder(source, ring, settings, self._instance, boot_id())
        self._sources[source] = recorder
        if self._to is not None:
            try:
                self._tell_departed(self._to)  # of this source, too, which goes on from there
                self._begin(recorder, self._to)
                self._to.retention.set_rules(self._rules)
            except StoreError as error:
                self._fail(error)
                self._close_store()  # all begin together when it opens again

    def use_tracks(self, ring: int) -> None:
        """Take analysed pictures from a ring.

        Raises:
            RingError, OSError: it cannot be used.
        """
        self._tracks = TrackIntake(ring)

    def configure(self, source: str, settings: Settings) -> None:
        if known := self._sources.get(source):
            known.configure(settings)
            if self._to is not None:
                self._to.retention.set_rules(self._rules)

    def forget(self, source: str, cause: Cause, detail: str, at: int | None = None) -> None:
        """
        Args:
            at: since when it is not recorded, UTC ns; None for now.
        """
        if source in self._sources:
            self._take_tracks()
            self._leave(_Leaving(self._sources.pop(source), cause, detail, at or self._clock.utc_ns()))

    def explain(self, absence: Absence) -> None:
        """Say of all other sources that the store knows why they are not recorded."""
        self._absence, self._books_at = absence, 0

    def note(self, source: str, at: int, cause: Cause, detail: str | None) -> None:
        if known := self._sources.get(source):
            known.note(at, cause, detail)

    def claim(self, source: str, claim: Claim) -> None:
        known = self._sources.get(source)
        if known is None or known.clips.has(claim.event):  # told again to this process: the one before was killed
            return
        clip = known.claim(claim, self._clock.utc_ns(), self._boottime())
        self._claimed.note(known, clip, "recording", [claim.event])
        if clip.events == [claim.event]:
            self._on_clip(known, clip, False)
        for shed in known.clips.take_shed():
            self._end_clip(known, shed)

    # --- turns -----------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Take what has come, and write what is due."""
        now, now_boot = self._clock.utc_ns(), self._boottime()
        self._age.look(now, now_boot)
        sources, tries = self._sources.values(), self.trouble is not None  # to know whether all can be written again
        due = [source for source in sources if tries or source.is_due(now_boot)]
        for source in due:
            source.take(now_boot)
        self._take_tracks()
        to = self._opened(now_boot)
        if to is None:
            return
        waited_ns = to.index.waited_ns
        try:
            with to.index.waiting_once():  # whatever the number of sources: their rings hold some seconds
                self._tell_departed(to)  # before files of theirs are deleted
                for source in due:
                    for clip in source.turn(to, now_boot):
                        self._end_clip(source, clip)
                self._claimed.write(to.store, to.index)
                if now_boot >= self._books_at:
                    self._books_at = now_boot + _BOOKS_NS
                    self._keep_books(to, now, now_boot)
        except StoreError as error:
            self._fail(error)
        else:
            self._recovered(now)
        if self._tracks is not None:
            self._tracks.commit()
        took = (self._boottime() - now_boot - to.index.waited_ns + waited_ns) / 1e9
        if took > _HUNG_S:
            self._troubles.add(now, self._clock.utc_ns(), "store_hung", f"a write took {took:.0f} s")
            log.warning("the store did not answer", seconds=round(took, 1))

    @property
    def accounts(self) -> list[Account]:
        now = self._clock.utc_ns()
        return [source.account(now) for source in self._sources.values()]

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of recordings, and free bytes of the disk; -1 if unknown."""
        if self._to is None:
            return 0, -1
        try:
            return sum(self._to.index.sizes().values()), self._to.store.free_bytes
        except StoreError:
            return 0, -1

    def finish(self) -> None:
        """Write what is wanted, and close all files."""
        with nullcontext() if self._to is None else self._to.index.waiting_once():  # whatever the number of sources
            for source in [*self._sources]:
                self.forget(source, "daemon_down", "it was stopped")
            while self._departed.leaving:
                self._give_up(self._departed.leaving.popleft())
            if self._tracks is not None:
                self._tracks.commit()
            if self._to is not None:
                self._finish_tracks(self._to)
                self._claimed.write(self._to.store, self._to.index, is_last=True)
                self._to.save_gaps(exactly=True)
        self._close_store()

    # ---------------------------------------------------------------------------------------------------------------

    @property
    def _rules(self) -> Rules:
        own: Mapping[str, int] = {
            name: row.max_bytes for name, row in self._sources.items() if row.max_bytes is not None
        }
        rules = self._place.rules
        return Rules(
            max_bytes=rules.max_bytes, min_free_bytes=rules.min_free_bytes, max_source_bytes=own,
            continuous_ns=rules.continuous_ns, events_ns=rules.events_ns,
        )  # fmt: skip

    def _begin(self, source: SourceRecorder, to: OpenStore) -> None:
        """The store can be used by a source, perhaps again."""
        source.begin(to, self._clock.utc_ns())
        for clip in source.clips.open:  # of the process before, or since the store was away
            self._claimed.note(source, clip, "recording")

    def _end_clip(self, source: SourceRecorder, clip: Clip) -> None:
        self._claimed.note(source, clip, "ready" if clip.covered else "failed")
        self._on_clip(source, clip, True)

    def _take_tracks(self) -> None:
        if self._tracks is not None:
            self._tracks.take({name: source.tracks for name, source in self._sources.items()})

    def _leave(self, leaving: _Leaving) -> None:
        """Finish a source, now or when the store can be used."""
        if self._to is not None:
            self._finish(leaving, self._to)
            return
        self._departed.leaving.append(leaving)
        if len(self._departed.leaving) > _MAX_LEAVING:
            self._give_up(self._departed.leaving.popleft())

    def _finish(self, leaving: _Leaving, to: OpenStore, *, begins: bool = False) -> None:
        """Write the rest of a source. Trouble with it is its own.

        Args:
            begins: the store has opened since it left.
        """
        source, cause, detail, at = leaving
        try:
            with to.index.waiting_once():
                if begins:
                    self._begin(source, to)
                source.take(self._boottime())
                try:
                    for clip in source.finish(to, self._clock.utc_ns(), cause, detail, at):
                        self._end_clip(source, clip)
                finally:
                    self._departed.untold.append(_Untold(source.files, self._clock.utc_ns() + 1))
                    self._tell_departed(to)
        except LookoutError as error:
            log.warning(_LOST, source=source.source, reason=str(error))
        finally:
            source.close()

    def _tell_departed(self, to: OpenStore) -> None:
        """Tell the index what it does not know of sources that have left.

        Where it cannot be written now, a later turn tells it, or the next one who opens the store. Others are recorded
        meanwhile; each of their turns waits for the index once.
        """
        while untold := self._departed.untold:
            try:
                with to.index.waiting_once():
                    keep_books(to, [untold[0].files], untold[0].at)
            except StoreError:
                return
            untold.popleft()

    def _give_up(self, leaving: _Leaving) -> None:
        """Its store does not come back, or too many wait for it."""
        reason = str(self.trouble or "its store is not open")
        log.warning(_LOST, source=leaving.source.source, reason=reason, cause=leaving.cause, since=leaving.at)
        leaving.source.close()

    def _close_store(self) -> None:
        if self._to is None:
            return
        for source in self._sources.values():
            source.let_go()
        self._to.close()
        self._to = None

    def _opened(self, now_boot: int) -> OpenStore | None:
        """The store, if it can be used."""
        if self._to is not None:
            try:
                self._to.store.check()
            except StoreError as error:
                self._fail(error)
                self._close_store()
            else:
                return self._to if self.trouble is None or now_boot >= self._retry_at else None
        if now_boot < self._retry_at:
            return None
        place = self._place
        try:
            self._to = open_store(
                place.path, self._rules, self._troubles, must_be_mount=place.must_be_mount, uuid=self.uuid
            )
            self.uuid = self._to.uuid
            with self._to.index.waiting_once():
                while self._departed.leaving:  # one after the other: a source may have left twice
                    self._finish(self._departed.leaving.popleft(), self._to, begins=True)
                self._tell_departed(self._to)
                for source in self._sources.values():
                    self._begin(source, self._to)
        except StoreError as error:
            self._fail(error)
            self._close_store()
            return None
        return self._to

    def _keep_books(self, to: OpenStore, now: int, now_boot: int) -> None:
        to.follow_index()
        keep_books(to, [source.files for source in self._sources.values()], now)
        if self._absence is not None:
            note_absent(to, self._absence, self._sources, now)
        to.save_gaps()
        self._finish_tracks(to)
        to.retention.run(now, ages=self._age.counts(now_boot))

    def _finish_tracks(self, to: OpenStore) -> None:
        until = self._boottime() + _FINISH_NS
        written = [path for source in self._sources.values() for path in source.tracks.open]
        self._left_tracks.finish(to.store, to.index, written, lambda: self._boottime() >= until)

    def _fail(self, error: StoreError) -> None:
        now, now_boot = self._clock.utc_ns(), self._boottime()
        if self.trouble is None or self.trouble.cause != error.cause:
            log.warning("recording waits for its store", cause=error.cause, reason=str(error))
            self._trouble_since, self._pause = now, _FIRST_PAUSE_NS
        self.trouble = error
        self._troubles.add(self._trouble_since, now, error.cause, str(error))
        self._retry_at = now_boot + self._pause
        self._pause = min(_MAX_PAUSE_NS, self._pause * 2)

    def _recovered(self, now: int) -> None:
        if self.trouble is not None:
            log.info("recording goes on", after_s=round((now - self._trouble_since) / 1e9, 1))
            self._troubles.add(self._trouble_since, now, self.trouble.cause, str(self.trouble))
            self.trouble, self._pause = None, _FIRST_PAUSE_NS
