"""The sources of this daemon: given by the fleet, added and removed like those of a configuration.

A claimed source is granted before its first message is made. A source that goes elsewhere is removed, and its last
message sent, before its grant ends and its claim may be released.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
import structlog

from daemon.clock import Clock
from daemon.config.root import Config, check
from daemon.config.sources import SourceConfig
from daemon.control.changes import Changes
from daemon.control.reload import Change
from daemon.errors import LookoutError, StoppingError
from daemon.fleet.grants import GrantedSources
from detectors.port import DetectorError

log = structlog.get_logger(__name__)
Stage = Literal["starting", "running", "changing", "ending", "sending"]
_SENT_WITHIN_NS = 3_000_000_000  # the last messages of a removed source; then its grant ends without them
_TRIES = 2  # of a source alone: another change of the model may have come between


@dataclass
class _Own:
    """Attributes:
    epoch: of this ownership.
    since_ns: in this stage.
    """

    config: SourceConfig
    epoch: int
    stage: Stage = "starting"
    since_ns: int = 0


@dataclass(frozen=True)
class _Batch:
    """Sources of one change, with their epochs."""

    rows: Mapping[str, tuple[SourceConfig, int]]
    tries: int = 0

    def halves(self) -> list[_Batch]:
        if len(self.rows) == 1:
            return [_Batch(self.rows, self.tries + 1)]
        items = [*self.rows.items()]
        middle = len(items) // 2
        return [_Batch(dict(items[:middle])), _Batch(dict(items[middle:]))]


@dataclass
class _Running:
    """A change that was submitted."""

    future: Future[Change]
    batch: _Batch


class OwnSources:
    """One thread calls it. No method blocks.

    Args:
        grants: of the sources; its bell also rings when a change is done, so that `poll` has something to do.
        begin: called with a source before it starts, so that its events are counted anew.

    Attributes:
        refused: sources that cannot be used here, with the reason, until they are taken out.
        stopped: sources that have ended, until they are taken out: their claims may be released.
    """

    def __init__(
        self,
        changes: Changes,
        grants: GrantedSources,
        begin: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._changes, self._grants, self._begin, self._clock = changes, grants, begin, clock
        self.refused: dict[str, str] = {}
        self.stopped: set[str] = set()
        self._rows: dict[str, _Own] = {}
        self._waiting: deque[_Batch] = deque()  # additions
        self._adding: _Running | None = None
        self._ending: list[_Running] = []

    def __contains__(self, source: str) -> bool:
        return source in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def running(self) -> dict[str, SourceConfig]:
        """The sources that run, or are about to, and are to go on."""
        return {id: row.config for id, row in self._rows.items() if row.stage in ("starting", "running", "changing")}

    def epochs(self) -> dict[str, int]:
        """Of the sources that run."""
        return {id: row.epoch for id, row in self._rows.items() if row.stage == "running"}

    def start(self, claimed: Mapping[str, tuple[SourceConfig, int]]) -> None:
        """Start sources that were claimed, with their epochs."""
        self._grants.add({id: epoch for id, (_, epoch) in claimed.items()})
        for id, (config, epoch) in claimed.items():
            self._begin(id)
            self._rows[id] = _Own(config, epoch)
        self._waiting.append(_Batch(dict(claimed)))
        self._add_next()

    def change(self, configs: Mapping[str, SourceConfig]) -> None:
        """Replace the configurations of sources that run."""
        rows = {}
        for id, config in configs.items():
            row = self._rows[id]
            if row.stage == "running":
                row.stage, rows[id] = "changing", (config, row.epoch)
        if rows:
            self._waiting.append(_Batch(rows))
            self._add_next()

    def end(self, sources: Collection[str]) -> None:
        """End sources. Nothing more is sent for those whose change is under way: it may come later than their end."""
        going = [id for id in sources if self._rows[id].stage not in ("ending", "sending")]
        self._grants.remove([id for id in going if self._rows[id].stage != "running"])
        self._end(going)

    def lose(self, epochs: Mapping[str, int]) -> list[str]:
        """End sources whose claims of these epochs are no more; nothing more is sent for them. Returns those."""
        lost = [id for id, epoch in epochs.items() if id in self._rows and self._rows[id].epoch == epoch]
        self._grants.remove(lost)
        self.end(lost)
        return lost

    def end_all(self) -> None:
        """End all sources at once, in whatever stage they are; nothing more is sent for them."""
        self._grants.clear()
        self._waiting.clear()
        self._end([*self._rows])

    def poll(self) -> None:
        """See what has become of changes."""
        if self._adding and self._adding.future.done():
            added, self._adding = self._adding, None
            self._added(added)
        self._add_next()
        for ended in [row for row in self._ending if row.future.done()]:
            self._ending.remove(ended)
            self._ended(ended)
        self._settle()

    # ---------------------------------------------------------------------------------------------------------------

    def _add_next(self) -> None:
        if self._adding is None and self._waiting:
            batch = self._waiting.popleft()
            self._adding = self._submit(batch, lambda now: self._with(now, batch))

    def _with(self, now: Config, batch: _Batch) -> Config:
        """With the sources of a batch that are still this daemon's; called in the thread of changes."""
        fresh = {id: config for id, (config, epoch) in batch.rows.items() if self._is_granted(id, epoch)}
        others = [source for source in now.sources if source.id not in fresh]
        return check(msgspec.structs.replace(now, sources=[*others, *fresh.values()]), may_be_empty=True)

    def _is_granted(self, id: str, epoch: int) -> bool:
        owner = self._grants.owner(id)
        return owner is not None and owner.epoch == epoch

    def _submit(self, batch: _Batch, read: Callable[[Config], Config]) -> _Running:
        future = self._changes.submit(read)
        future.add_done_callback(lambda _: self._grants.bell.ring())
        return _Running(future, batch)

    def _added(self, added: _Running) -> None:
        error = _error_of(added.future)
        if isinstance(error, StoppingError):
            return
        rows = {id: row for id, row in self._rows.items() if self._is_of(added.batch, id, row)}
        if error is None:
            for id, row in rows.items():
                self._rows[id] = replace(row, stage="running", config=added.batch.rows[id][0])
        elif len(added.batch.rows) > 1 or added.batch.tries < _TRIES - 1:
            self._waiting.extendleft(reversed(added.batch.halves()))
        else:
            for id, row in rows.items():
                self.refused[id] = str(error)
                row.stage = "running"  # as it was before, or not at all: removing it does no harm

    @staticmethod
    def _is_of(batch: _Batch, id: str, row: _Own) -> bool:
        return id in batch.rows and batch.rows[id][1] == row.epoch and row.stage in ("starting", "changing")

    def _end(self, sources: Collection[str]) -> None:
        rows = {id: (self._rows[id].config, self._rows[id].epoch) for id in sources}
        if not rows:
            return
        for id in rows:
            self._rows[id].stage = "ending"
        self._grants.expect_last(rows.keys())
        self._ending.append(self._submit(_Batch(rows), lambda now: _without(now, rows.keys())))

    def _ended(self, ended: _Running) -> None:
        error = _error_of(ended.future)
        if isinstance(error, StoppingError):
            return
        rows = [id for id in ended.batch.rows if id in self._rows and self._rows[id].epoch == ended.batch.rows[id][1]]
        if error is not None:
            log.warning("sources cannot be removed: tried again", sources=len(rows), reason=str(error))
            self._end(rows)
            return
        removed = ended.future.result().removed
        for id in rows:
            self._rows[id].stage = "sending"
            self._rows[id].since_ns = self._clock.monotonic_ns()
            if id not in removed:  # it never came, and has no last message
                self._grants.remove([id])

    def _settle(self) -> None:
        """Take out sources whose last message is sent."""
        now = self._clock.monotonic_ns()
        forgotten = self._grants.forgotten()
        for id, row in [*self._rows.items()]:
            is_late = now - row.since_ns > _SENT_WITHIN_NS
            if row.stage == "sending" and (id in forgotten or is_late or not self._is_granted(id, row.epoch)):
                del self._rows[id]
                self._grants.remove([id])
                self.stopped.add(id)


def _without(now: Config, sources: Collection[str]) -> Config:
    kept = [source for source in now.sources if source.id not in sources]
    return msgspec.structs.replace(now, sources=kept)


def _error_of(future: Future[Change]) -> Exception | None:
    """Why a change was refused. A change that failed half way ends the daemon by itself."""
    try:
        future.result(0)
    except (LookoutError, DetectorError) as error:
        return error
    except (Exception, CancelledError):  # noqa: BLE001 - reported by the thread of changes
        return StoppingError()
    return None
