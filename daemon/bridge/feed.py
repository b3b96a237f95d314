"""The messages of one daemon become records, states, figures and notices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import structlog

from daemon.bridge.clip_intake import ClipIntake
from daemon.bridge.event_intake import EventIntake, Place
from daemon.bridge.figures import FigureBox, Waiting
from daemon.bridge.journal_pages import JournalPages, NoJournalError, Page
from daemon.bridge.notices import NoticeBook
from daemon.bridge.recording_gaps import INTERVAL_S, read_gaps, read_stores
from daemon.bridge.records import Entry
from daemon.bridge.report import FeedReport, LinkState
from daemon.bridge.spool import Spool
from daemon.bridge.spool_file import Text
from daemon.bridge.states import StateBoard
from daemon.clock import Clock
from daemon.peers.addresses import DaemonAddress
from daemon.peers.api import AwayError, DaemonApi
from daemon.peers.link import Arrived, Link
from daemon.system.stop_token import StopToken
from lookout.epochs import Epochs
from lookout.messages import Clip, Counts, Event, Message, Metrics, decode, topic

log = structlog.get_logger(__name__)
_KINDS = ("status", "events", "counts", "metrics", "clips", "stores")
_CATCH_UP_NS = 10_000_000_000  # between two looks at the journal
_ROOM_S = 2.0  # until the disk has the last page
_COUNTS_NS = 10_000_000_000  # between two questions for counts
_PLACE = "place"


@dataclass
class _Progress:
    """
    Attributes:
        is_behind: the journal may have events that did not come.
        is_unheard: the journal did not answer, which was said.
        wants_counts: they are to be asked for.
        counts_ns: monotonic time before which they are not asked for again.
        looked_ns, gaps_ns: monotonic time of the last look at the journal, and at what recordings lack.
    """

    is_behind: bool = True
    is_unheard: bool = False
    wants_counts: bool = True
    counts_ns: int = 0
    looked_ns: int = 0
    gaps_ns: int = 0


class _AllCounts(msgspec.Struct):
    counts: list[Counts]


class Feed:
    """
    Args:
        epochs: of all feeds, so that what a former owner of a source says late is left out.

    Attributes:
        name: of the daemon.
    """

    def __init__(
        self,
        address: DaemonAddress,
        spool: Spool,
        states: StateBoard,
        notices: NoticeBook,
        epochs: Epochs,
        clock: Clock,
    ) -> None:
        self.name = address.name
        self._address, self._spool, self._states, self._notices = address, spool, states, notices
        self._epochs, self._clock = epochs, clock
        self._figures: Sequence[FigureBox] = ()
        self._api = DaemonApi(address)
        self._ending = StopToken()
        self._guard = threading.Lock()  # the link's thread and that of `tick`
        place = spool.texts.get(self._owner, _PLACE)
        self._journal = JournalPages(self._api)
        self._intake = EventIntake(address.name, _decoded(place), clock, has_journal=self._journal.exists)
        self._state: tuple[LinkState, str | None] = "connecting", None
        self._progress = _Progress()
        self._clips = ClipIntake(address.name, clock)
        self._told = self._unreadable = 0
        self._link = Link(address, clock, _KINDS, self._take, self._on_state)

    @property
    def _owner(self) -> str:
        return f"feed/{self.name}"

    def start(self) -> None:
        if not self._api.exists:
            text = "the daemon's HTTP API is not known, or there is no token for it: gaps on the wire cannot be filled"
            log.warning(text, daemon=self.name)
        self._link.start()

    def show_to(self, figures: Sequence[FigureBox]) -> None:
        """Give detections to these; without any, the daemon is not asked for them."""
        self._figures = figures
        self._link.want([topic("detections")] if figures else [])

    def tick(self) -> None:
        """Once a second or so; may take seconds, while the daemon's API does not answer."""
        now = self._clock.monotonic_ns()
        if self._state[0] == "up" and (self._progress.is_behind or now - self._progress.looked_ns > _CATCH_UP_NS):
            self._catch_up(now)
        if self._state[0] == "up" and self._progress.wants_counts and self._api.exists:
            self._ask_counts()
        if self._state[0] == "up" and self._api.exists and now - self._progress.gaps_ns > INTERVAL_S * 1e9:
            self._progress.gaps_ns = now
            self._look_at_recordings()

    def _ask_counts(self) -> None:
        """The wire tells them after a change, and now and then. The daemon tells its sources first."""
        progress, now = self._progress, self._clock.monotonic_ns()
        if now < progress.counts_ns or not self._states.read().knows_all_of(self.name):
            return
        progress.counts_ns = now + _COUNTS_NS
        try:
            answer = self._api.request("GET", "counts")
            if answer.status != 200:
                raise AwayError(answer.error)
            for counts in msgspec.json.decode(answer.body, type=_AllCounts).counts:
                if self._epochs.admits(counts.source, counts.owner):
                    self._states.on_answer(self.name, counts)
            progress.wants_counts = False
        except (AwayError, msgspec.MsgspecError) as error:
            log.debug("counts are not known now", daemon=self.name, reason=str(error))

    def _look_at_recordings(self) -> None:
        """Stores tell of changes alone, and nothing tells of gaps."""
        try:
            stores = read_stores(self._address, self._api)
            for row in stores:
                self._notices.on_store(self.name, row.name, row.cause, row.reason)
            if stores:
                self._notices.on_gaps(self.name, read_gaps(self._address, self._api))
        except AwayError as error:
            log.debug("what recordings lack is not known now", daemon=self.name, reason=str(error))

    def report(self) -> FeedReport:
        state, reason = self._state
        intake = self._intake
        return FeedReport(
            daemon=self.name, state=state, reason=reason, events=intake.events, filled=intake.filled,
            lost=intake.lost, clips=self._clips.count, notices=self._told,
        )  # fmt: skip

    def tell(self, entries: Sequence[Entry]) -> None:
        """Notices of this daemon, which are counted here."""
        self._told += len(entries)

    def request_stop(self) -> None:
        """End soon. A second call does nothing."""
        self._ending.set()
        self._link.request_stop()

    def close(self, seconds: float) -> None:
        """Wait so long for the end of the link."""
        self.request_stop()
        self._link.close(seconds)

    # --- the link's thread -----------------------------------------------------------------------------------------

    def _on_state(self, state: LinkState, reason: str | None) -> None:
        self._state = state, reason
        self._states.on_daemon(self.name, state == "up", reason)
        self._notices.on_daemon(self.name, state == "up", reason)
        if state == "up":
            self._progress.is_behind = self._progress.wants_counts = True
        else:
            with self._guard:
                self._intake.on_away(has_journal=self._journal.exists)

    def _take(self, batch: Sequence[Arrived]) -> bool:
        with self._guard:
            before = self._intake.place
            entries = [entry for arrived in batch for entry in self._entries(arrived)]
            self._append(entries, before)
        return True

    def _entries(self, arrived: Arrived) -> Iterator[Entry]:
        kind, _, rest = arrived.topic.partition(b"/")
        if kind == b"detections":
            waiting = Waiting(self.name, rest[:-1].decode(errors="replace"), arrived.payload, self._epochs.admits)
            for box in self._figures:
                box.put(waiting)
            return
        try:
            message = decode(*arrived)
        except ValueError as error:
            self._unreadable += 1
            if self._unreadable == 1:
                log.error("messages of a daemon are not as the wire has them", daemon=self.name, reason=str(error))
            return
        owner = getattr(message, "owner", None)
        if owner is not None and not self._epochs.admits(getattr(message, "source", ""), owner):
            if isinstance(message, Event):
                self._intake.skip(message)
            return
        yield from self._kept(message)

    def _kept(self, message: Message) -> Iterator[Entry]:
        self._states.on_message(self.name, message)
        self._notices.on_message(self.name, message)
        if isinstance(message, Event):
            yield from self._intake.take(message)
            self._progress.is_behind |= self._intake.is_held
        elif isinstance(message, Clip):
            yield from self._clips.take(message)
        elif isinstance(message, Metrics):
            self._link.expect(message.interval_s)

    # ---------------------------------------------------------------------------------------------------------------

    def _catch_up(self, now: int) -> None:
        """Page by page: a slow disk takes what it can, and the journal keeps the rest."""
        progress, intake = self._progress, self._intake
        progress.looked_ns = now
        while intake.has_journal and not self._ending.is_set:
            place = intake.place
            try:
                page = self._journal.newest() if place is None else self._journal.after(place.number)
                before = self._journal.newest(place.number + 1) if place is not None and intake.may_lack(page) else None
            except NoJournalError:
                self._take_from(intake.do_without)
                break
            except AwayError as error:
                self._do_without_answer(str(error))
                return
            progress.is_unheard = False
            if place is None:
                self._take_from(partial(_begun, intake, page))
                break
            self._take_from(partial(intake.take_page, page, before))
            if not page.more:
                break
            if not self._spool.await_room(_ROOM_S, self._ending):
                with self._guard:
                    intake.hold()
                return
        progress.is_behind = intake.is_held

    def _do_without_answer(self, reason: str) -> None:
        if not self._progress.is_unheard:
            log.warning("the journal does not answer: events wait for it", daemon=self.name, reason=reason)
        self._progress.is_unheard = True
        if self._intake.has_waited_too_long:
            log.error("the journal has not answered for a minute: what only it has is given up", daemon=self.name)
            self._take_from(self._intake.do_without)

    def _take_from(self, giver: Callable[[], Iterator[Entry]]) -> None:
        with self._guard:
            before = self._intake.place
            self._append([*giver()], before)

    def _append(self, entries: Sequence[Entry], before: Place | None) -> None:
        """Records and the place of their last event are on disk together, or not at all."""
        place = self._intake.place
        if place is not None and place != before:
            text = msgspec.json.encode(place).decode()
            self._spool.append(entries, [Text(self._owner, _PLACE, text)])
        elif entries:
            self._spool.append(entries)


def _begun(intake: EventIntake, newest: Page) -> Iterator[Entry]:
    intake.begin(newest)
    yield from ()


def _decoded(text: str | None) -> Place | None:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Place)
    except msgspec.MsgspecError:
        return None
