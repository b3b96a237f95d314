"""How much was seen, over a day and longer: from the index, and where it does not know, from the ends of files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from daemon.clock import Clock
from daemon.http.answers import json_answer
from daemon.http.operation import Answer, Operation, array, record
from daemon.playback.listings import INTEGER, LONGEST_NS, REASONS
from daemon.playback.opened import OpenedStore
from daemon.playback.queries import FROM, STEP, STORE, TO, Query, Times, source_of
from daemon.playback.stores import Stores
from daemon.recording.records import FileFacts
from daemon.recording.tracks.activity import Activity, ActivityCount, activity_at_end
from daemon.recording.tracks.records import SeenFrame
from daemon.recording.tracks.track_records import TracksError, tracks_in

_SECOND: Final = 1_000_000_000
_MAX_ROWS: Final = 5_000
_MAX_STEP: Final = 86_400
_FAR: Final = 1 << 40  # s; what a damaged file says may be any number
_SETTLED_NS: Final = 600_000_000_000  # no boxes come to a file that ended so long ago
_KEPT: Final = 65_536  # files; some 25 MB
_READ_NS: Final = 3_000_000_000  # for one answer; a store has five seconds
_DECODE_NS: Final = 1_000_000_000  # of it, for files whose end tells nothing


class StoreActivity(msgspec.Struct, frozen=True):
    """
    Attributes:
        values: for each step the largest number of tracks at once; null where no picture was analysed.
        partial: there was no time to read all files, whose steps are null. The next request goes on.
    """

    store: str
    values: list[int | None]
    partial: bool


class ActivityListing:
    """Answers of the index and of the ends of files of tracks, which it keeps."""

    def __init__(self, stores: Stores, clock: Clock) -> None:
        self._stores, self._clock, self._kept = stores, clock, _Kept()

    def operations(self) -> list[Operation]:
        activity = record("Activity", {"source": {"type": "string"}, "from": INTEGER, "to": INTEGER, "step": INTEGER,
                          "failed": REASONS, "stores": array(StoreActivity).content}, StoreActivity)  # fmt: skip
        return [
            Operation("GET", "/api/v1/recordings/{source}/activity", self._activity, "view", "How much was seen when",
                      {200: Answer("By store", activity)}, (400, 404, 503), (FROM, TO, STEP, STORE)),
        ]  # fmt: skip

    async def _activity(self, request: Request) -> Response:
        source, query = source_of(request), Query(request, FROM, TO, STEP, STORE)
        times, step = query.times(LONGEST_NS), query.whole("step", 1, _MAX_STEP)
        if step is None:
            raise HTTPException(400, "step is missing: a whole number of seconds")
        rows = -(-(times.end - times.begin) // (step * _SECOND))
        if rows > _MAX_ROWS:
            raise HTTPException(400, f"there would be {rows} steps, and {_MAX_ROWS} may be: ask for longer ones")
        work = partial(_of_store, source, times, step, rows, self._read)
        answers = await self._stores.of_source(source, work, query.text("store"))
        stores = [StoreActivity(name, *found) for name, found in answers.found.items()]
        return json_answer(
            {"source": source, "from": times.begin, "to": times.end, "step": step, "stores": stores,
             "failed": answers.failed}
        )  # fmt: skip

    def _read(self, files: Iterable[FileFacts], opened: OpenedStore) -> tuple[list[Activity], bool]:
        """The activity of files, and whether there was time for all. Any thread may call it."""
        store, clock, kept, is_whole = opened.store.uuid, self._clock, self._kept, True
        begun, settled = clock.monotonic_ns(), clock.utc_ns() - _SETTLED_NS
        decoded = 0
        all: list[Activity] = []
        missing = {}
        for facts in files:
            found = kept.get(store, facts.id)
            if found is not None:
                all.append(found)
            else:
                missing[facts.id] = facts
        for facts, file in opened.tracks_of([*missing.values()]):
            now = clock.monotonic_ns()
            if now - begun > _READ_NS:
                return all, False
            del missing[facts.id]
            found = activity_at_end(file)
            if found is None and decoded > _DECODE_NS:
                is_whole = False
                continue
            if found is None:
                found = _counted(facts, file)
                decoded += clock.monotonic_ns() - now
            all.append(found)
            if facts.reason is not None and facts.end < settled:
                kept.put(store, facts.id, found)
        for facts in missing.values():  # they have no file of tracks
            if facts.reason is not None and facts.end < settled:
                kept.put(store, facts.id, _NONE)
        return all, is_whole


_NONE: Final = Activity(0, b"")


class _Kept:
    """The activity of files that do not change any more; any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, Activity] = {}

    def get(self, store: str, file: str) -> Activity | None:
        return self._found.get(store + file)

    def put(self, store: str, file: str, found: Activity) -> None:
        with self._lock:
            self._found[store + file] = found
            while len(self._found) > _KEPT:
                del self._found[next(iter(self._found))]


_Read = Callable[[Iterable[FileFacts], OpenedStore], tuple[list[Activity], bool]]


def _of_store(
    source: str, times: Times, step: int, rows: int, read: _Read, opened: OpenedStore
) -> tuple[list[int | None], bool]:
    known = {
        file: Activity(first, counts)
        for file, first, counts in opened.index.activity(source, *times)
        if isinstance(first, int) and isinstance(counts, bytes) and len(counts) % 2 == 0
    }
    others, is_whole = read((row for row in opened.files(source, *times) if row.id not in known), opened)
    first, behind = times.begin // _SECOND, -(-times.end // _SECOND)
    seconds = np.full(rows * step, -1, np.int32)
    _fill(seconds[: behind - first], first, [*known.values(), *others])
    values = seconds.reshape(rows, step).max(axis=1).tolist()
    return [value if value >= 0 else None for value in values], not is_whole


def _fill(seconds: npt.NDArray[np.int32], first: int, found: Sequence[Activity]) -> None:
    """The most of each second.

    Args:
        first: the first of `seconds`.
    """
    lengths = np.array([len(activity.counts) // 2 for activity in found], np.int64)
    begins = np.array([max(-_FAR, min(_FAR, activity.first - first)) for activity in found], np.int64)
    ends = np.cumsum(lengths)
    places = np.arange(lengths.sum()) + np.repeat(begins - (ends - lengths), lengths)
    most = Activity(0, b"".join(activity.counts for activity in found)).most
    within = (places >= 0) & (places < len(seconds))
    np.maximum.at(seconds, places[within], most[within])


def _counted(facts: FileFacts, file: int) -> Activity:
    """From the frames, up to where the file was changed."""
    count = ActivityCount()
    with suppress(TracksError):
        for item in tracks_in(file, facts.id):
            if isinstance(item, SeenFrame):
                count.add(item.frame.captured_at, item.objects)
    return count.found
