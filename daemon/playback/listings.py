"""Stores, the timeline of a source, and the fragments for a player."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from daemon.http.answers import json_answer
from daemon.http.operation import Answer, Operation, array, record
from daemon.playback.opened import OpenedStore
from daemon.playback.queries import FROM, STORE, TO, Query, Times, source_of
from daemon.playback.stores import Stores
from daemon.recording.boxes import BoxError
from daemon.recording.records import FileFacts, FragmentRow
from daemon.recording.timeline import Span
from daemon.sources.mime import mime_of

_DAY_NS = 86_400_000_000_000
LONGEST_NS = 32 * _DAY_NS
_MAX_ROWS = 10_000  # of an answer
COLUMNS: Final = ("offset", "size", "begin", "end", "pts", "duration", "key", "claimed")


class TimelineRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A time that was recorded, or was not.

    Attributes:
        begin, end: UTC ns.
        claimed: recorded, and an event wants some of it.
        cause: why nothing was recorded; None for video.
    """

    begin: int
    end: int
    claimed: bool = False
    cause: str | None = None
    detail: str | None = None


class StoreTimeline(msgspec.Struct, frozen=True):
    """
    Attributes:
        rows: without hole or overlap, up to what is known.
        next: `from` of what follows, if there was too much for one answer.
    """

    store: str
    rows: list[TimelineRow]
    next: str | None


class FileFragments(msgspec.Struct, frozen=True, kw_only=True):
    """A file, and the fragments of a time.

    Attributes:
        id: for `files/{id}`.
        mime: for a player; None for video that none knows.
        begin, end: UTC ns.
        head: offset and size of what a player needs before all fragments.
        base_dts: ns, the time of the session at which the file's own times begin.
        turns: quarter turns clockwise that make the picture upright; players do it.
        is_open: it is being written.
        epoch: of the owner, in a fleet: a file of a higher one is newer, whatever the clocks say.
        fragments: rows as `columns` of the answer says; times are UTC ns, pts and duration ns of the session.
    """

    id: str
    session: str
    mime: str | None
    width: int
    height: int
    turns: int
    begin: int
    end: int
    head: tuple[int, int]
    base_dts: int
    is_open: bool
    epoch: int | None
    fragments: list[tuple[int | bool, ...]]


class StoreFragments(msgspec.Struct, frozen=True):
    """
    Attributes:
        damaged: files that cannot be read, with the reason.
        next: `from` of what follows, if there was too much for one answer.
    """

    store: str
    files: list[FileFragments]
    damaged: dict[str, str]
    next: str | None


REASONS: Final = {"type": "object", "additionalProperties": {"type": "string"}}
INTEGER: Final = {"type": "integer"}


class Listings:
    """Answers of the index and of files' own tables."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def operations(self) -> list[Operation]:
        one = "/api/v1/recordings/{source}"
        timeline = record("Spans", {"source": {"type": "string"}, "from": INTEGER, "to": INTEGER, "failed": REASONS,
                          "stores": array(StoreTimeline).content}, StoreTimeline)  # fmt: skip
        fragments = record("Fragments", {"source": {"type": "string"}, "from": INTEGER, "to": INTEGER,
                           "failed": REASONS, "columns": {"type": "array", "items": {"type": "string"}},
                           "stores": array(StoreFragments).content}, StoreFragments)  # fmt: skip
        overview = record("Recordings", {"stores": {"type": "array", "items": {"type": "object"}},
                          "sources": {"type": "array", "items": {"type": "string"}}})  # fmt: skip
        return [
            Operation("GET", "/api/v1/recordings", self._overview, "view", "Stores, and the sources in them",
                      {200: Answer("All stores", overview)}, errors=(400,)),
            Operation("GET", f"{one}/spans", self._spans, "view", "What is recorded, and why the rest is not",
                      {200: Answer("By store", timeline)}, (400, 404, 503), (FROM, TO, STORE)),
            Operation("GET", f"{one}/fragments", self._fragments, "view", "Pieces of files for a player",
                      {200: Answer("By store", fragments)}, (400, 404, 503), (FROM, TO, STORE)),
        ]  # fmt: skip

    async def _overview(self, request: Request) -> Response:
        Query(request)
        answers = await self._stores.tried(_store_facts)
        rows = [{"name": name, **facts} for name, facts in answers.found.items()]
        rows += [{"name": name, "state": "failed", "reason": reason} for name, reason in answers.failed.items()]
        sources = {row["source"] for facts in answers.found.values() for row in facts["sources"]}
        return json_answer({"stores": rows, "sources": sorted(sources)})

    async def _spans(self, request: Request) -> Response:
        source, query = source_of(request), Query(request, FROM, TO, STORE)
        times = query.times(LONGEST_NS)
        answers = await self._stores.of_source(source, partial(_timeline, source, times), query.text("store"))
        rows = [StoreTimeline(name, *found) for name, found in answers.found.items()]
        return json_answer(
            {"source": source, "from": times.begin, "to": times.end, "stores": rows, "failed": answers.failed}
        )

    async def _fragments(self, request: Request) -> Response:
        source, query = source_of(request), Query(request, FROM, TO, STORE)
        times = query.times(LONGEST_NS)
        answers = await self._stores.of_source(source, partial(_files, source, times), query.text("store"))
        rows = [StoreFragments(name, *found) for name, found in answers.found.items()]
        return json_answer(
            {"source": source, "from": times.begin, "to": times.end, "columns": COLUMNS, "stores": rows,
             "failed": answers.failed}
        )  # fmt: skip


def _store_facts(opened: OpenedStore) -> dict[str, Any]:
    index = opened.index
    sizes = index.sizes()
    sources = []
    for source in index.sources():
        newest = index.newest(source)
        oldest = next(index.oldest(source), None)
        sources.append(
            {
                "source": source,
                "bytes": sizes.get(source, 0),
                "first": oldest.begin if oldest else None,
                "last": newest.end if newest else None,
                "missing": index.open_gap(source),
            }
        )
    return {"state": "up", "uuid": opened.store.uuid, "bytes": sum(sizes.values()),
            "free_bytes": opened.store.free_bytes, "sources": sources}  # fmt: skip


def _timeline(source: str, times: Times, opened: OpenedStore) -> tuple[list[TimelineRow], str | None]:
    rows: list[TimelineRow] = []
    for found in opened.index.timeline(source, *times):
        if isinstance(found, Span):
            row = TimelineRow(found.begin, found.end, found.file.claimed)
        else:
            row = TimelineRow(found.begin, found.end, False, found.cause, found.detail)
        if rows and msgspec.structs.replace(row, begin=rows[-1].begin, end=rows[-1].end) == rows[-1]:
            rows[-1] = msgspec.structs.replace(rows[-1], end=row.end)
        elif len(rows) == _MAX_ROWS:
            return rows, str(rows[-1].end)
        else:
            rows.append(row)
    return rows, None


def _files(source: str, times: Times, opened: OpenedStore) -> tuple[list[FileFragments], dict[str, str], str | None]:
    files: list[FileFragments] = []
    damaged: dict[str, str] = {}
    left = _MAX_ROWS
    for facts in opened.files(source, *times):
        try:
            found = _file(facts, times, opened, left)
        except HTTPException:
            continue  # deleted meanwhile
        except BoxError as error:
            damaged[facts.id] = str(error)
            continue
        if found is None:
            return files, damaged, str(max(times.begin, facts.begin))
        if found.fragments:
            files.append(found)
            left -= len(found.fragments)
    return files, damaged, None


def _file(facts: FileFacts, times: Times, opened: OpenedStore, most: int) -> FileFragments | None:
    """None if it has more fragments than may be told."""
    with closing(opened.open(facts)) as file:
        found = file.scan()
        beginning = file.read(0, found.beginning)
    rows = [row for row in found.fragments if row.end > times.begin and row.begin < times.end]
    if len(rows) > most < _MAX_ROWS:
        return None
    stream = found.head.stream
    return FileFragments(
        id=facts.id,
        session=stream.session,
        mime=_mime(beginning),
        width=stream.width,
        height=stream.height,
        turns=stream.turns,
        begin=found.facts.begin,
        end=found.facts.end,
        head=(0, found.beginning),
        base_dts=found.head.base_dts,
        is_open=found.tail is None,
        epoch=found.head.epoch,
        fragments=[_columns(row) for row in rows],
    )


def _columns(row: FragmentRow) -> tuple[int | bool, ...]:
    return row.offset, row.size, row.begin, row.end, row.pts, row.duration, row.key, row.claimed


def _mime(beginning: bytes) -> str | None:
    try:
        return mime_of(beginning)
    except ValueError:
        return None
