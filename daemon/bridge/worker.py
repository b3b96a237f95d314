"""A target's thread: it connects, tells what is next, and goes on where it was after whatever happens."""

from __future__ import annotations

import random
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Protocol

import structlog

from daemon.bridge import account as accounts
from daemon.bridge.figures import FigureBox
from daemon.bridge.plan import MOST_READ, Cooldown, Planner, Step, settle
from daemon.bridge.port import AwayError, Connection, Farewell, GoneError
from daemon.bridge.push.port import Digests
from daemon.bridge.records import Delivery, Picture, Record
from daemon.bridge.report import LinkState, TargetReport
from daemon.bridge.spool import Spool
from daemon.bridge.states import StateBoard
from daemon.bridge.targets.opening import TargetContext, open_target
from daemon.clock import Bell, Clock
from daemon.config.targets import TargetConfig
from daemon.errors import ConfigError
from daemon.system.database import DamagedError
from daemon.system.stop_token import StopToken

log = structlog.get_logger(__name__)
WINDOW = 100  # records that may be with a target and not yet known on disk as delivered
_PICTURED = 1  # likewise, where each waits for its picture: the next one would hold up the one before it
_PER_S, _BURST = 200, 1000  # records
_PICTURE_S = 1.0
_IDLE_S = 0.2
_PAUSE_S, _LONGEST_S = 1.0, 60.0
_JITTER = 0.2
_INTERRUPT_S = 0.5
# Of records that are older, so many or more are one message.
_LATE_NS, _DIGEST_OF, _DIGEST_MOST = 120_000_000_000, 3, 10_000

Open = Callable[[TargetConfig, TargetContext], Connection]


class Pictures(Protocol):
    """The pictures of events, from the daemons."""

    def get(self, record: Record, seconds: float) -> Picture | None:
        """The picture of an event, or why there is none, after so long at most; None where none is to be expected."""
        ...


@dataclass(frozen=True)
class Helpers:
    """Things that a target may need.

    Attributes:
        pictures: None where it wants none.
        cooldown: None without one.
        open_connection: connects.
    """

    pictures: Pictures | None = None
    cooldown: Cooldown | None = None
    open_connection: Open = open_target


class Pace:
    """So many records a second more than come meanwhile: an outage is made up for without a flood."""

    def __init__(self, spool: Spool, clock: Clock) -> None:
        self._spool, self._clock = spool, clock
        self._left, self._seen, self._at_ns = 0.0, 0, 0

    def begin(self) -> None:
        """A connection is made."""
        self._left, self._seen, self._at_ns = WINDOW, self._spool.last, self._clock.monotonic_ns()

    def allowed(self) -> int:
        """How many may be sent now."""
        now, last = self._clock.monotonic_ns(), self._spool.last
        self._left = min(_BURST, self._left + (now - self._at_ns) / 1e9 * _PER_S + last - self._seen)
        self._at_ns, self._seen = now, last
        return int(self._left)

    def spend(self, records: int) -> None:
        self._left -= records


class Target(threading.Thread):
    """
    Attributes:
        figures: detections go there.
    """

    def __init__(
        self,
        config: TargetConfig,
        spool: Spool,
        states: StateBoard,
        context: TargetContext,
        helpers: Helpers = Helpers(),
    ) -> None:
        super().__init__(name=f"target-{config.name}", daemon=True)
        self.config, self.figures = config, FigureBox(config.detections_fps)
        self._spool, self._states = spool, states
        self._connect = partial(helpers.open_connection, config, context)
        self._clock, self._pictures = context.clock, helpers.pictures
        self._account = accounts.load(spool, config.name)
        self._told = self._account.copy()  # of one moment, for reports
        self._planner = Planner(config, spool, helpers.cooldown, self._clock.utc_ns)
        # After a kill a window of records may be there already.
        self._maybe_there = self._account.cursor + (MOST_READ if spool.was_killed else 0)
        self._sent = self._account.cursor  # over this connection
        self._is_left_behind = False
        self._pace = Pace(spool, self._clock)
        self._pause_s = _PAUSE_S
        self._state: tuple[LinkState, int, str | None, float | None] = "connecting", self._clock.utc_ns(), None, None
        self._oldest_at: int | None = None
        self._connection: Connection | None = None
        self._ending, self._bell = StopToken(), Bell()
        accounts.save(spool, config.name, self._account)
        spool.need(config.name, self._account.cursor)
        spool.listen(self._bell)

    def request_stop(self) -> None:
        """End soon. A second call does nothing."""
        self._ending.set()
        self._bell.ring()

    def finish(self, seconds: float) -> bool:
        """After `request_stop`: wait so long, then interrupt what it does; whether it has ended."""
        if self.ident is None:
            return True
        self.join(seconds)
        connection = self._connection
        if self.is_alive() and connection is not None:
            connection.close()
            self.join(_INTERRUPT_S)
        self._is_left_behind = self.is_alive()  # what it still hears would be entered into its successor's account
        return not self._is_left_behind

    def interrupt(self) -> None:
        """Have `finish` find it at its end: whatever hangs is closed. Returns at once, or after a second."""
        connection = self._connection
        if self.is_alive() and connection is not None:
            connection.close()

    def report(self) -> TargetReport:
        """The account now; any thread."""
        account, last, (state, since, reason, retry_in_s) = self._told, self._spool.last, self._state
        hole = max(0, self._spool.first - 1 - account.cursor)
        dropped = dict(account.dropped)
        if hole:  # told to the target when it is there again
            cause = self._spool.lost_between(account.cursor + 1, account.cursor + hole).cause
            dropped[cause] = dropped.get(cause, 0) + hole
        spooled, at = last - account.cursor - hole, self._oldest_at
        return TargetReport(
            name=self.config.name,
            type=str(self.config.__struct_config__.tag),
            state=state,
            since=since,
            reason=reason,
            retry_in_s=retry_in_s,
            received=last - account.base,
            delivered=account.delivered,
            filtered=account.filtered,
            thinned=account.thinned,
            dropped=dropped,
            spooled=spooled,
            repeated=account.repeated,
            oldest_s=max(0.0, (self._clock.utc_ns() - at) / 1e9) if spooled and at is not None else 0.0,
            figures=self.figures.report(),
        )

    # --- the thread ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        while not self._ending.is_set:
            retry_in_s: float | None = None
            longest_s = _LONGEST_S
            try:
                self._connect_and_serve()
                return
            except GoneError as error:
                self._change("gone", str(error))
                return
            except AwayError as error:
                reason, retry_in_s, longest_s = str(error), error.retry_in_s, error.longest_s
            except (ConfigError, sqlite3.Error, DamagedError) as error:
                reason = str(error)
            except Exception as error:
                log.exception("a target failed: it is connected again", target=self.config.name)
                reason = f"{type(error).__name__}: {error}"
            self._pause_s = min(longest_s, self._pause_s)
            pause = max(retry_in_s or 0.0, self._pause_s * (1 - _JITTER * random.random()))  # noqa: S311
            self._change("away", reason, pause)
            self._note_oldest()
            self._clock.wait(self._ending, pause)
            self._pause_s = min(longest_s, self._pause_s * 2)

    def _connect_and_serve(self) -> None:
        """Until the stop.

        Raises:
            AwayError, GoneError: the connection is closed.
        """
        connection = self._connection = self._connect()
        try:
            self._change("up")
            self._pace.begin()
            self._maybe_there, self._sent = max(self._maybe_there, self._account.tried), self._account.cursor
            while not self._ending.is_set:
                connection.tend(self._states)
                worked = self._tell_next(connection)
                worked |= self._show_figures(connection)
                if not worked:
                    self._bell.wait(_IDLE_S)
            if isinstance(connection, Farewell):
                connection.say_farewell()
        finally:
            self._connection = None
            connection.close()

    def _tell_next(self, connection: Connection) -> bool:
        """Whether a record was settled."""
        try:
            if isinstance(connection, Digests) and (steps := self._late()):
                return self._tell_late(connection, steps)
            limit = self._allowed()
            steps = self._planner.plan(self._account, limit) if limit > 0 else []
        except (sqlite3.Error, DamagedError) as error:  # the spool says more of it
            log.debug("the spool cannot be read now", target=self.config.name, reason=str(error))
            return False
        if not steps:
            self._oldest_at = None
            return False
        before = self._account.cursor
        batch = [self._delivery(step.record) for step in steps if step.record is not None]
        self._oldest_at = batch[0].record.at if batch else None
        self._pace.spend(len(batch))
        accounts.save(self._spool, self.config.name, self._account)  # with what is tried
        try:
            results = connection.deliver(batch) if batch else ()
        except (AwayError, GoneError) as error:
            self._settle(steps, error.settled)
            raise
        self._settle(steps, results)
        return self._account.cursor > before

    def _late(self) -> list[Step]:
        """Records that have waited for so long that people get one message for all: see `_tell_late`."""
        late = self._clock.utc_ns() - _LATE_NS
        oldest = self._spool.read(self._account.cursor, 1)
        if not oldest or oldest[0].at > late:
            return []
        planned = self._planner.plan(self._account, _DIGEST_MOST, _DIGEST_MOST)
        steps = [*takewhile(lambda step: step.record is None or step.record.at <= late, planned)]
        if sum(step.record is not None for step in steps) >= _DIGEST_OF:
            return steps
        return [*takewhile(lambda step: step.record is None, steps)]  # the others one by one

    def _tell_late(self, connection: Digests, steps: Sequence[Step]) -> bool:
        records = [step.record for step in steps if step.record is not None]
        result = None
        if records:
            batch = [self._delivery(record, with_picture=False) for record in records[:-1]]
            self._pace.spend(1)
            result = connection.digest([*batch, self._delivery(records[-1])])
        self._settle(steps, [result] * len(records))
        return True

    def _picture_of(self, record: Record) -> Picture | None:
        if self._pictures is None or record.kind != "event" or not self.config.wants_pictures:
            return None
        return self._pictures.get(record, _PICTURE_S)

    def _delivery(self, record: Record, *, with_picture: bool = True) -> Delivery:
        picture = self._picture_of(record) if with_picture else None
        if record.position > self._sent:  # not only awaited further
            self._sent = record.position
            self._account.try_at(record.position)
        return Delivery(record, picture, record.position <= self._maybe_there)

    def _settle(self, steps: Sequence[Step], results: Sequence[str | None]) -> None:
        if self._is_left_behind:
            return
        before = self._account.cursor
        settle(self._account, steps, results)
        for reason in [reason for reason in results if reason is not None][:1]:
            log.warning("a target refuses a record: it is dropped", target=self.config.name, reason=reason)
        self._told = self._account.copy()
        if self._account.cursor == before:
            return
        self._pause_s = _PAUSE_S
        accounts.save(self._spool, self.config.name, self._account)
        self._spool.need(self.config.name, self._account.cursor)

    def _allowed(self) -> int:
        """How many records may be sent now."""
        window = _PICTURED if self.config.wants_pictures and self._pictures else WINDOW
        if not self._spool.is_failing:
            told = self._account.delivered - accounts.delivered_on_disk(self._spool, self.config.name)
            window = min(window, WINDOW - told)
        return min(window, self._pace.allowed())

    def _show_figures(self, connection: Connection) -> bool:
        due = self.figures.take(self._clock.monotonic_ns())
        if not due:
            return False
        sent = 0
        try:
            sent = connection.show(due)
        finally:
            self.figures.settle(sent, len(due) - sent)
        return True

    def _note_oldest(self) -> None:
        """For the age of what waits, while nothing can be sent."""
        try:
            waiting = self._spool.read(self._account.cursor, 1)
        except (sqlite3.Error, DamagedError):
            return
        self._oldest_at = waiting[0].at if waiting else None

    def _change(self, state: LinkState, reason: str | None = None, retry_in_s: float | None = None) -> None:
        was, since, known, _ = self._state
        if state != was:
            since = self._clock.utc_ns()
        if (state, reason) != (was, known):
            about = {"target": self.config.name, **({"reason": reason} if reason else {})}
            if state == "up":
                log.info("a target is connected", **about)
            else:
                log.warning("a target is gone for good" if state == "gone" else "a target is away", **about)
        self._state = state, since, reason, retry_in_s
