"""The accounts of all frames: fate and latencies.

A source has an account, or where there are several models one for each that looks at it. For each account, at any
moment: captured = published + dropped + in flight. Each frame has one row in each account, which the monitor drains
later, so that the threads on a frame's path pay for one append.
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import astuple, replace

from daemon.pipeline.box_record import BoxRecord
from daemon.pipeline.drop_causes import CAUSES
from daemon.pipeline.frames import FrameInfo
from lookout.messages import Dropped, Latency, Percentiles

STAGES: tuple[str, ...] = Latency.__struct_fields__

# One frame's fate: source is an index into the ledger's accounts, dropped is 0 for published or 1 + an index into
# CAUSES, and the times are ns; captured_ns (monotonic) and behind are those of `FrameInfo`. A dropped frame has zeros
# where it never got.
ROW = np.dtype(
    [(name, np.int64) for name in ("source", "dropped", "seq", "captured_at", "captured_ns", "behind", *STAGES)]
)
_COLUMNS = len(ROW.names or ())
_PACK = Struct(f"{_COLUMNS}q").pack  # a row: half of what an array of integers costs
Rows = npt.NDArray[np.void]
_RANKS = np.array([0.5, 0.95, 0.99, 1.0])
_MAX_ROWS = 1 << 20  # if nobody drains: 96 MiB
MAX_GONE = 256  # sources that were removed and whose accounts are kept, so that one that comes back goes on


@dataclass(frozen=True)
class Counts:
    """Totals of one account since the start, or of all accounts of a source.

    Attributes:
        passed_over: packets that are no frames, by kind; see `lookout.messages.SourceMetrics`.
        bad_boxes: impossible boxes that were removed.
        has_boxes: some box was possible.
        place: index of the account in the rows.
    """

    captured: int
    published: int
    dropped: Dropped
    passed_over: Mapping[str, int] = field(default_factory=dict)
    bad_boxes: int = 0
    has_boxes: bool = False
    place: int = field(default=0, compare=False)

    @classmethod
    def none(cls) -> Counts:
        return cls(0, 0, Dropped())

    @property
    def in_flight(self) -> int:
        dropped: int = sum(getattr(self.dropped, cause) for cause in CAUSES)
        return self.captured - self.published - dropped


def together(rows: Sequence[Counts]) -> Counts:
    """The totals of several accounts: a frame counts once in each."""
    if len(rows) == 1:
        return rows[0]
    dropped = Dropped(**{cause: sum(getattr(row.dropped, cause) for row in rows) for cause in CAUSES})
    captured, published = sum(row.captured for row in rows), sum(row.published for row in rows)
    bad = sum(row.bad_boxes for row in rows)
    return Counts(captured, published, dropped, rows[0].passed_over, bad, any(row.has_boxes for row in rows))


class _Source(NamedTuple):
    """A source as it was added last.

    Attributes:
        accounts: by model.
        places: of its accounts.
        first: number of its first frame.
        captured: frames in its first account then.
    """

    accounts: Mapping[str, str]
    places: tuple[int, ...]
    first: int
    captured: int


class _RowBuffer:
    """Rows that the monitor has not drained yet."""

    def __init__(self) -> None:
        self._rows = array("q")
        self._lock = threading.Lock()

    def append(self, rows: bytes) -> None:
        with self._lock:
            if len(self._rows) < _MAX_ROWS * _COLUMNS:
                self._rows.frombytes(rows)

    def drain(self) -> array[int]:
        with self._lock:
            rows, self._rows = self._rows, array("q")
        return rows


class Ledger:
    """The accounts of all sources; safe to use from every thread.

    The account of a removed source is kept: frames may be on their way, and a source that comes back continues its
    account. The latest `MAX_GONE` of these accounts are kept; a new one reuses the place of an older one.

    Per-frame counters take no contended lock. Under the interpreter's lock a contended lock convoys: a thread that gets
    it must then wait for the interpreter's lock while holding it, so the next one waits too. One thread captures a
    source and one publishes, so plain integers are enough.

    Attributes:
        accounts: ids, whose order is the index in the rows: that of the source, or with its model behind a slash.
        bad_boxes: number of impossible boxes that were removed.
        boxes: whether boxes are possible, by account and by model.
        left_out: number of candidates beyond the detector's limit.
        untracked: number of boxes that began no track, because their source had too many.
        masks_left_out: number of masks beyond `publisher.max_masks`.
    """

    def __init__(self, sources: Sequence[str] = ()) -> None:
        self.accounts: list[str] = []
        self.bad_boxes = self.left_out = self.untracked = self.masks_left_out = 0
        self._models: list[str] = []  # that an account is of
        self._index: dict[str, int] = {}
        self._active: dict[str, None] = {}
        self._sources: dict[str, _Source] = {}  # removed ones too
        self._gone: dict[str, int] = {}  # accounts: calls of `forget_removed` since, longest removed first
        self._free: list[int] = []  # places in `accounts` that a new one may have
        self._captured: list[int] = []
        self._published: list[int] = []
        self._dropped: list[Dropped] = []
        self.boxes = BoxRecord()
        self._passed_over: list[Counter[str]] = []
        self._sent, self._lost = _RowBuffer(), _RowBuffer()
        self._lock = threading.Lock()
        for source in sources:
            self.add(source)

    def add(self, source: str, accounts: Mapping[str, str] | None = None) -> int:
        """Open the accounts of a source; returns the frames captured so far, if it was there before.

        Args:
            accounts: by model; None for one account of the source's own name.
        """
        accounts = accounts or {"": source}
        with self._lock:
            for model, account in accounts.items():
                if account not in self._index:
                    self._index[account] = self._new_place(account)
                self._models[self._index[account]] = model
                self._gone.pop(account, None)
            places = tuple(self._index[account] for account in accounts.values())
            captured = self._captured[places[0]]
            before, first = self._sources.get(source), captured
            if before and self.accounts[before.places[0]] == next(iter(before.accounts.values())):
                first = before.first + self._captured[before.places[0]] - before.captured
            self._sources[source] = _Source(accounts, places, first, captured)
            self._active[source] = None
            return first

    def accounts_of(self, source: str) -> Mapping[str, str]:
        """The accounts of a source by model."""
        with self._lock:
            return self._sources[source].accounts

    def models_of(self, source: str) -> tuple[str, ...]:
        """The models that look at a source; those that did, if it is removed."""
        with self._lock:
            return tuple(self._sources[source].accounts)

    def add_bad_boxes(self, frame: FrameInfo, count: int) -> None:
        """Count impossible boxes of a frame."""
        with self._lock:
            self.bad_boxes += count
            if (index := self._index.get(frame.account or frame.source)) is not None:
                self.boxes.add_bad(index, self._models[index], count)

    def note_boxes(self, frames: Iterable[FrameInfo]) -> None:
        """Note that frames have possible boxes."""
        index = self._index
        found = {place for frame in frames if (place := index.get(frame.account or frame.source)) is not None}
        if found:
            self.boxes.note(found, {self._models[place] for place in found})

    def add_left_out(self, count: int) -> None:
        with self._lock:
            self.left_out += count

    def add_untracked(self, count: int) -> None:
        with self._lock:
            self.untracked += count

    def add_masks_left_out(self, count: int) -> None:
        with self._lock:
            self.masks_left_out += count

    def remove(self, source: str) -> None:
        """Note that a source is removed."""
        with self._lock:
            if source in self._active:
                del self._active[source]
                self._gone.update(dict.fromkeys(self._sources[source].accounts.values(), 0))

    def forget_removed(self) -> None:
        """Forget the longest removed sources beyond `MAX_GONE`.

        The monitor calls it after it has used the drained rows. An account goes at the second call that finds the
        source removed and without frames in flight: by then its rows are drained and used.
        """
        with self._lock:
            for account in list(self._gone)[: max(0, len(self._gone) - MAX_GONE)]:
                self._gone[account] += 1
                index = self._index[account]
                if self._gone[account] > 1 and self._counts_of(index).in_flight == 0:
                    del self._gone[account], self._index[account]
                    self._free.append(index)
                    self._forget_source(account.partition("/")[0])

    def _forget_source(self, source: str) -> None:
        """Forget a source whose last account is gone. Requires the lock."""
        if source not in self._active and not any(account.partition("/")[0] == source for account in self._gone):
            self._sources.pop(source, None)

    def _new_place(self, account: str) -> int:
        if self._free:
            index = self._free.pop()
            self.accounts[index] = account
            self._captured[index] = self._published[index] = 0
            self.boxes.begin_account(index)
            self._dropped[index] = Dropped()
            self._passed_over[index] = Counter()
            return index
        self.accounts.append(account)
        self._models.append("")
        self._captured.append(0)
        self._published.append(0)
        self._dropped.append(Dropped())
        self._passed_over.append(Counter())
        return len(self.accounts) - 1

    def _counts_of(self, index: int) -> Counts:
        """Read published and dropped before captured, so that no frame seems lost."""
        published, dropped = self._published[index], self._dropped[index]
        captured, passed_over = self._captured[index], dict(self._passed_over[index])
        boxes = self.boxes
        return Counts(captured, published, dropped, passed_over, boxes.bad[index], index in boxes.possible, index)

    def captured(self, source: str) -> None:
        """Count a captured frame, or a picture that was lost in decoding."""
        for place in self._sources[source].places:
            self._captured[place] += 1

    def dropped(
        self, source: str, seq: int, cause: str, captured_at: int = 0, captured_ns: int = 0, decode: int = 0
    ) -> None:
        """Count a captured frame as dropped before any model saw it; `cause` is one of CAUSES."""
        for place in self._sources[source].places:
            self._drop(place, cause, (seq, captured_at, captured_ns, 0, decode))

    def _drop(self, index: int, cause: str, row: tuple[int, int, int, int, int]) -> None:
        why = CAUSES.index(cause)
        with self._lock:
            total = self._dropped[index]
            self._dropped[index] = replace(total, **{cause: getattr(total, cause) + 1})
            self._lost.append(_PACK(index, 1 + why, *row, 0, 0, 0, 0, 0))

    def passed_over(self, source: str, counts: Mapping[str, int]) -> None:
        """Add packets that are no frames of the source, by kind."""
        with self._lock:
            for place in self._sources[source].places:
                self._passed_over[place].update(counts)

    def drop(self, frame: FrameInfo, cause: str) -> None:
        """Count a frame as dropped, in its own account; see `dropped`."""
        row = frame.seq, frame.captured_at, frame.captured_ns, 0, frame.decode
        self._drop(self._index[frame.account or frame.source], cause, row)

    def published(self, account: str) -> int:
        """Count a frame whose message was handed to the sinks; returns the index of its account, for `add_rows`."""
        index = self._index[account]
        self._published[index] += 1
        return index

    def add_rows(self, published: Iterable[tuple[int, FrameInfo, Latency]]) -> None:
        """Add the rows of published frames, each with the index of its account, which may be forgotten by now.

        One call for many frames, because it takes a lock.
        """
        rows = [
            _PACK(index, 0, frame.seq, frame.captured_at, frame.captured_ns, frame.lateness, *astuple(latency))
            for index, frame, latency in published
        ]
        self._sent.append(b"".join(rows))

    def totals(self, account: str) -> Dropped:
        """Dropped frames of an account by cause, since the start."""
        return self._dropped[self._index[account]]

    def counts(self) -> dict[str, Counts]:
        """Totals of all current sources."""
        with self._lock:
            return {
                source: together([self._counts_of(place) for place in row.places])
                for source in self._active
                for row in (self._sources[source],)
            }

    def counts_by_model(self) -> dict[str, dict[str, Counts]]:
        """Totals of all current sources, by model."""
        with self._lock:
            return {
                source: {model: self._counts_of(place) for model, place in zip(row.accounts, row.places)}
                for source in self._active
                for row in (self._sources[source],)
            }

    def counts_of(self, source: str) -> Counts:
        """Totals of a current or removed source."""
        with self._lock:
            return together([self._counts_of(place) for place in self._sources[source].places])

    def counts_of_account(self, account: str) -> Counts:
        """Totals of an account, of a current or removed source."""
        with self._lock:
            return self._counts_of(self._index[account])

    def drain(self) -> Rows:
        """The rows since the last call, as an array of ROW: published frames, then dropped ones."""
        found = [rows for rows in (self._sent.drain(), self._lost.drain()) if rows]
        return np.concatenate([np.frombuffer(rows, dtype=ROW) for rows in found] or [np.empty(0, ROW)])


def percentiles(rows: Rows) -> dict[str, Percentiles] | None:
    """Of each stage over the published frames among the rows; None if there is none."""
    return percentiles_of_each(rows, np.zeros(len(rows), np.int64), 1)[0]


def percentiles_of_each(rows: Rows, groups: npt.NDArray[np.int64], count: int) -> list[dict[str, Percentiles] | None]:
    """The same for each group of rows, numbered from 0; sorted at once, because lanes and publisher wait meanwhile.

    Args:
        groups: (n,) the group of each row.
        count: of the groups.
    """
    kept = rows["dropped"] == 0
    groups = groups[kept]
    sizes = np.bincount(groups, minlength=count)
    some = np.flatnonzero(sizes)
    first = (np.cumsum(sizes) - sizes)[some]
    places = first[:, None] + (sizes[some, None] - 1) * _RANKS
    low = places.astype(np.int64)
    high, part = np.minimum(low + 1, (first + sizes[some] - 1)[:, None]), places - low
    found: list[dict[str, Percentiles]] = [{} for _ in some]
    for stage in STAGES:
        values = rows[stage][kept]
        values = values[np.lexsort((values, groups))]
        for row, quartet in zip(found, (values[low] + (values[high] - values[low]) * part).astype(np.int64).tolist()):
            row[stage] = Percentiles(*quartet)
    result: list[dict[str, Percentiles] | None] = [None] * count
    for group, row in zip(some.tolist(), found):
        result[group] = row
    return result
