"""Events and counts over HTTP: the journal by number, and totals as they are now."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, get_args

from anyio import CapacityLimiter, to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from daemon.analytics.event_publisher import EventPublisher
from daemon.analytics.journal import Journal
from daemon.analytics.journal_file import Query
from daemon.analytics.snapshots import EventSnapshots
from daemon.errors import LookoutError
from daemon.http.answers import json_answer
from daemon.http.operation import JPEG, Answer, Operation, Parameter, array, record, reference
from daemon.pipeline.thumbnails import Box, smaller
from lookout.messages import Counts, Event, EventKind

_MAX_LIMIT = 1000
_KINDS = get_args(EventKind)
_MAX_NUMBER = 1 << 62
_MAX_TEXT = 200  # characters of a name
_MAX_READS = 2  # at once
_MAX_WAITING = 32  # requests
_WIDTHS = 16, 4096
_FURTHEST = 1e6  # pixels
_EVENTS = record(
    "Events",
    {
        "events": {"type": "array", "items": reference(Event)},
        "next": {"type": "integer", "description": "`since` of the next request"},
        "more": {"type": "boolean", "description": "there are more behind `next` now"},
        "lost": {"type": "integer", "description": "events since the start that the journal could not take"},
    },
    Event,
)
_ALL_COUNTS = record("AllCounts", {"counts": array(Counts).content}, Counts)
_NAME = {"type": "string", "minLength": 1}
_SOURCE = Parameter("source", _NAME)
_WIDTH = Parameter("width", {"type": "integer", "minimum": _WIDTHS[0], "maximum": _WIDTHS[1]})
_BOX = Parameter("box", {**_NAME, "description": "x1,y1,x2,y2 in pixels of the source's picture"})
_QUERY = (
    Parameter("since", {"type": "integer", "minimum": 0}),
    Parameter("limit", {"type": "integer", "minimum": 1, "maximum": _MAX_LIMIT}),
    _SOURCE,
    Parameter("kind", {"enum": [*_KINDS]}),
    Parameter("rule", _NAME),
    Parameter("label", _NAME),
    Parameter("attribute", {**_NAME, "description": "of events about an attribute: NAME or NAME=VALUE"}),
    *(Parameter(name, {"type": "integer", "minimum": 0}) for name in ("before", "from", "until")),
)


class EventOperations:
    """Answers requests; a slow disk costs requests and nothing else."""

    def __init__(self, events: EventPublisher) -> None:
        self._events = events
        self._reads, self._waiting = CapacityLimiter(_MAX_READS), 0

    def operations(self) -> list[Operation]:
        return [
            Operation("GET", "/api/v1/events", self._list, "view",
                      "Events of the journal: those behind `since`, or else the newest",
                      {200: Answer("In the order of their numbers", _EVENTS)},
                      errors=(400, 404, 503), parameters=_QUERY),
            Operation("GET", "/api/v1/events/{id}/snapshot.jpg", self._show_picture, "view",
                      "The picture of an event; with `width` a smaller one, and with `box` what lies around that",
                      {200: JPEG}, errors=(400, 404, 503), parameters=(_WIDTH, _BOX)),
            Operation("GET", "/api/v1/counts", self._list_counts, "view",
                      "Totals and occupancy of each source", {200: Answer("Now", _ALL_COUNTS)},
                      errors=(400,), parameters=(_SOURCE,)),
        ]  # fmt: skip

    async def _list(self, request: Request) -> Response:
        query, journal = _query_of(request), self._events.journal
        if journal is None:
            raise HTTPException(404, "no journal is kept: set events.journal")
        if self._waiting >= _MAX_WAITING:
            raise HTTPException(503, f"{_MAX_WAITING} requests wait for events already", {"Retry-After": "1"})
        self._waiting += 1
        try:
            return json_answer(await to_thread.run_sync(_answer, journal, query, limiter=self._reads))
        except LookoutError as error:
            raise HTTPException(503, str(error), {"Retry-After": "5"}) from error
        finally:
            self._waiting -= 1

    async def _show_picture(self, request: Request) -> Response:
        snapshots = self._events.snapshots
        if snapshots is None:
            raise HTTPException(404, "no pictures of events are kept: set events.snapshots")
        _check_names(request, ("width", "box"))
        width, box = _number(request, "width", *_WIDTHS), _box(request)
        if box is not None and width is None:
            raise HTTPException(400, "box: is given without width")
        if self._waiting >= _MAX_WAITING:
            raise HTTPException(503, f"{_MAX_WAITING} requests wait for events already", {"Retry-After": "1"})
        self._waiting += 1
        read = partial(_picture, snapshots, request.path_params["id"], width, box)
        try:
            found = await to_thread.run_sync(read, limiter=self._reads)
        finally:
            self._waiting -= 1
        if found is None:
            raise HTTPException(404, "no picture of this event: it had none, or it is gone")
        return Response(found, media_type="image/jpeg")

    async def _list_counts(self, request: Request) -> Response:
        _check_names(request, ("source",))
        source = _text(request, "source")
        return json_answer({"counts": [row for row in self._events.counts() if source in (None, row.source)]})


def _picture(snapshots: EventSnapshots, id: str, width: int | None, box: Box | None) -> bytes | None:
    found = snapshots.read(id)
    return found if found is None or width is None else smaller(found, width, box)


def _query_of(request: Request) -> Query:
    """The parameters of a request for events.

    Raises:
        HTTPException: 400: one of them is not understood.
    """
    _check_names(request, [row.name for row in _QUERY])
    kind = _text(request, "kind")
    if kind is not None and kind not in _KINDS:
        raise HTTPException(400, f"kind: {kind!r} is not one of {', '.join(_KINDS)}")
    limit = _number(request, "limit", 1, _MAX_LIMIT)
    return Query(
        since=_number(request, "since", 0, _MAX_NUMBER),
        limit=100 if limit is None else limit,
        source=_text(request, "source"),
        kind=kind,
        rule=_text(request, "rule"),
        label=_text(request, "label"),
        attribute=_attribute(request),
        before=_number(request, "before", 0, _MAX_NUMBER),
        begin=_number(request, "from", 0, _MAX_NUMBER),
        end=_number(request, "until", 0, _MAX_NUMBER),
    )


def _answer(journal: Journal, query: Query) -> dict[str, Any]:
    """`next` is the `since` of the next request; `more` means that there are events behind it now."""
    since = query.since
    last = journal.last_written
    rows = journal.read(replace(query, limit=query.limit + 1))
    is_cut = len(rows) > query.limit
    rows = (rows[: query.limit] if since is not None else rows[-query.limit :]) if is_cut else rows
    more = is_cut and since is not None
    end = rows[-1].number if rows else since or 0
    return {"events": rows, "next": end if more else max(end, last), "more": more, "lost": journal.lost}


def _check_names(request: Request, names: Sequence[str]) -> None:
    for name, value in request.query_params.multi_items():
        if name not in names:
            raise HTTPException(400, f"{name[:_MAX_TEXT]!r} is not a parameter: there are {', '.join(names)}")
        if len(request.query_params.getlist(name)) > 1:
            raise HTTPException(400, f"{name}: is given twice")
        if not value:
            raise HTTPException(400, f"{name}: is empty")


def _text(request: Request, name: str) -> str | None:
    value = request.query_params.get(name)
    if value is not None and len(value) > _MAX_TEXT:
        raise HTTPException(400, f"{name}: is longer than {_MAX_TEXT} characters")
    return value


def _attribute(request: Request) -> str | None:
    text = _text(request, "attribute")
    if text is not None and not text.partition("=")[0]:
        raise HTTPException(400, f"attribute: must be NAME or NAME=VALUE, not {text!r}")
    return text


def _box(request: Request) -> Box | None:
    """A box as x1,y1,x2,y2 in pixels."""
    text = _text(request, "box")
    if text is None:
        return None
    try:
        x1, y1, x2, y2 = (float(part) for part in text.split(","))
    except ValueError:
        x1 = y1 = x2 = y2 = math.nan
    if not (-_FURTHEST < x1 <= x2 < _FURTHEST and -_FURTHEST < y1 <= y2 < _FURTHEST):
        raise HTTPException(400, f"box: must be x1,y1,x2,y2 in pixels, not {text[:40]!r}")
    return x1, y1, x2, y2


def _number(request: Request, name: str, minimum: int, maximum: int) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 19 or not minimum <= int(text) <= maximum:
        raise HTTPException(400, f"{name}: must be a whole number from {minimum} to {maximum}, not {text[:40]!r}")
    return int(text)
