"""The accounts of all frames: fate and latencies.

For each source, at any moment: captured = published + dropped + in flight. Each frame has one row, which the monitor
drains later, so that the threads on a frame's path pay for one append.
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct

import numpy as np
import numpy.typing as npt
from msgspec.structs import astuple, replace

from daemon.pipeline.drop_causes import CAUSES
from daemon.pipeline.frames import FrameInfo
from lookoutd.messages import Dropped, Latency, Percentiles

IMPOSSIBLE = (
    "impossible, with corners the wrong way round or classes without a label: the model is of another family, or has "
    "other labels"
)
STAGES: tuple[str, ...] = Latency.__struct_fields__

# One frame's fate: source is an index into the ledger's ids, dropped is 0 for published or 1 + an index into
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
    """Totals of one source since the start.

    Attributes:
        passed_over: packets that are no frames, by kind; see `lookoutd.messages.SourceMetrics`.
        bad_boxes: impossible boxes that were removed.
        has_boxes: some box was possible.
    """

    captured: int
    published: int
    dropped: Dropped
    passed_over: Mapping[str, int] = field(default_factory=dict)
    bad_boxes: int = 0
    has_boxes: bool = False

    @property
    def in_flight(self) -> int:
        dropped: int = sum(getattr(self.dropped, cause) for cause in CAUSES)
        return self.captured - self.published - dropped


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
    account. The latest `MAX_GONE` of these accounts are kept; a new source reuses the place of an older one.

    Per-frame counters take no contended lock. Under the interpreter's lock a contended lock convoys: a thread that gets
    it must then wait for the interpreter's lock while holding it, so the next one waits too. One thread captures a
    source and one publishes, so plain integers are enough.

    Attributes:
        sources: ids, whose order is the index in the rows.
        bad_boxes: number of impossible boxes that were removed.
        bad_of_model: those of the present model.
        left_out: number of candidates beyond the detector's limit.
        untracked: number of boxes that began no track, because their source had too many.
        masks_left_out: number of masks beyond `publisher.max_masks`.
    """

    def __init__(self, sources: Sequence[str] = ()) -> None:
        self.sources: list[str] = []
        self.bad_boxes = self.bad_of_model = self.left_out = self.untracked = self.masks_left_out = 0
        self._index: dict[str, int] = {}
        self._active: dict[str, None] = {}
        self._gone: dict[str, int] = {}  # calls of `forget_removed` since, longest removed first
        self._free: list[int] = []  # places in `sources` that a new one may have
        self._captured: list[int] = []
        self._published: list[int] = []
        self._dropped: list[Dropped] = []
        self._bad: list[int] = []
        self._with_boxes: set[int] = set()  # sources with a possible box
        self._is_proven = False  # the present model has given a possible box
        self._passed_over: list[Counter[str]] = []
        self._sent, self._lost = _RowBuffer(), _RowBuffer()
        self._lock = threading.Lock()
        for source in sources:
            self.add(source)

    def add(self, source: str) -> int:
        """Open the account of a source; returns the frames captured so far, if it had an account."""
        with self._lock:
            if source not in self._index:
                self._index[source] = self._new_place(source)
            self._active[source] = None
            self._gone.pop(source, None)
            return self._captured[self._index[source]]

    def add_bad_boxes(self, source: str, count: int) -> None:
        """Count impossible boxes of a source's frame."""
        with self._lock:
            self.bad_boxes += count
            self.bad_of_model += count
            if (index := self._index.get(source)) is not None:
                self._bad[index] += count

    def note_boxes(self, sources: Iterable[str]) -> None:
        """Note sources of which a frame has possible boxes."""
        found = {index for source in sources if (index := self._index.get(source)) is not None}
        if not found <= self._with_boxes or (found and not self._is_proven):
            with self._lock:
                self._with_boxes |= found
                self._is_proven = True

    def begin_model(self) -> None:
        """Note that another model gives the boxes from now on."""
        with self._lock:
            self.bad_of_model, self._is_proven = 0, False

    @property
    def fault_of_model(self) -> str | None:
        """Why the present model finds nothing, though it gives boxes; None if some are possible, or there are none."""
        if self._is_proven or not self.bad_of_model:
            return None
        return f"all {self.bad_of_model} boxes of the model so far are {IMPOSSIBLE}"

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
                self._gone[source] = 0

    def forget_removed(self) -> None:
        """Forget the longest removed sources beyond `MAX_GONE`.

        The monitor calls it after it has used the drained rows. An account goes at the second call that finds the
        source removed and without frames in flight: by then its rows are drained and used.
        """
        with self._lock:
            for source in list(self._gone)[: max(0, len(self._gone) - MAX_GONE)]:
                self._gone[source] += 1
                index = self._index[source]
                if self._gone[source] > 1 and self._counts_of(index).in_flight == 0:
                    del self._gone[source], self._index[source]
                    self._free.append(index)

    def _new_place(self, source: str) -> int:
        if self._free:
            index = self._free.pop()
            self.sources[index] = source
            self._captured[index] = self._published[index] = self._bad[index] = 0
            self._with_boxes.discard(index)
            self._dropped[index] = Dropped()
            self._passed_over[index] = Counter()
            return index
        self.sources.append(source)
        self._captured.append(0)
        self._published.append(0)
        self._bad.append(0)
        self._dropped.append(Dropped())
        self._passed_over.append(Counter())
        return len(self.sources) - 1

    def _counts_of(self, index: int) -> Counts:
        """Read published and dropped before captured, so that no frame seems lost."""
        published, dropped = self._published[index], self._dropped[index]
        captured, passed_over = self._captured[index], dict(self._passed_over[index])
        return Counts(captured, published, dropped, passed_over, self._bad[index], index in self._with_boxes)

    def captured(self, source: str) -> None:
        """Count a captured frame, or a picture that was lost in decoding."""
        self._captured[self._index[source]] += 1

    def dropped(
        self, source: str, seq: int, cause: str, captured_at: int = 0, captured_ns: int = 0, decode: int = 0
    ) -> None:
        """Count a captured frame as dropped; `cause` is one of CAUSES."""
        index, why = self._index[source], CAUSES.index(cause)
        with self._lock:
            total = self._dropped[index]
            self._dropped[index] = replace(total, **{cause: getattr(total, cause) + 1})
            self._lost.append(_PACK(index, 1 + why, seq, captured_at, captured_ns, 0, decode, 0, 0, 0, 0, 0))

    def passed_over(self, source: str, counts: Mapping[str, int]) -> None:
        """Add packets that are no frames of the source, by kind."""
        index = self._index[source]
        with self._lock:
            self._passed_over[index].update(counts)

    def drop(self, frame: FrameInfo, cause: str) -> None:
        """Count a frame as dropped; see `dropped`."""
        self.dropped(frame.source, frame.seq, cause, frame.captured_at, frame.captured_ns, frame.decode)

    def published(self, source: str) -> int:
        """Count a frame whose message was handed to the sinks; returns the source's index, for `add_rows`."""
        index = self._index[source]
        self._published[index] += 1
        return index

    def add_rows(self, published: Iterable[tuple[int, FrameInfo, Latency]]) -> None:
        """Add the rows of published frames, each with the index of its source, which may be forgotten by now.

        One call for many frames, because it takes a lock.
        """
        rows = [
            _PACK(index, 0, frame.seq, frame.captured_at, frame.captured_ns, frame.lateness, *astuple(latency))
            for index, frame, latency in published
        ]
        self._sent.append(b"".join(rows))

    def totals(self, source: str) -> Dropped:
        """Dropped frames of a source by cause, since the start."""
        return self._dropped[self._index[source]]

    def counts(self) -> dict[str, Counts]:
        """Totals of all current sources."""
        with self._lock:
            return {source: self._counts_of(self._index[source]) for source in self._active}

    def counts_of(self, source: str) -> Counts:
        """Totals of a current or removed source."""
        with self._lock:
            return self._counts_of(self._index[source])

    def index(self, source: str) -> int:
        """Index of a source in the rows."""
        return self._index[source]

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
