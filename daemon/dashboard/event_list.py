"""Events of several daemons in one list, newest first: from their journals, or what the page has heard itself."""

from __future__ import annotations

import asyncio
import base64
import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from starlette.exceptions import HTTPException

from daemon.dashboard.requests import Requests
from daemon.dashboard.seen import SeenMarks
from daemon.dashboard.watched import WatchedDaemon
from daemon.peers.api import AwayError
from lookout.messages import Event

MAX_LIMIT = 200
_NAMES = ("daemon", "source", "rule", "type", "label", "attribute", "seen", "before", "after", "limit", "cursor")
_MAX_TEXT = 200
_MAX_TURNS = 10  # requests to a journal for one answer, whose events have been seen, or have not


class _Page(msgspec.Struct):
    events: list[Event]


class EventQuery(msgspec.Struct):
    """A request for events.

    Attributes:
        attribute: a classifier's name, or NAME=VALUE.
        seen: those alone that somebody has marked, or those that nobody has.
        before, after: UTC, seconds.
        cursor: for each daemon, events below this number.
    """

    daemon: str | None = None
    source: str | None = None
    rule: str | None = None
    type: str | None = None
    label: str | None = None
    attribute: str | None = None
    seen: Literal["yes", "no"] | None = None
    before: float | None = None
    after: float | None = None
    limit: int = 50
    cursor: dict[str, int] | None = None


def query_of(parameters: Mapping[str, str]) -> EventQuery:
    """The parameters of a request.

    Raises:
        HTTPException: 400: one of them is not understood.
    """
    given: dict[str, Any] = {}
    for name, value in parameters.items():
        if name not in _NAMES:
            raise HTTPException(400, f"{name[:_MAX_TEXT]!r} is not a parameter: there are {', '.join(_NAMES)}")
        if value:
            given[name] = value[: _MAX_TEXT * 20]
    try:
        if "cursor" in given:
            given["cursor"] = msgspec.json.decode(base64.urlsafe_b64decode(given["cursor"]))
        query = msgspec.convert(given, EventQuery, strict=False)
    except (msgspec.MsgspecError, ValueError) as error:
        raise HTTPException(400, f"the request is not understood: {str(error)[:_MAX_TEXT]}") from error
    query.limit = max(1, min(MAX_LIMIT, query.limit))
    return query


@dataclass
class _Found:
    """Events of one daemon, newest first.

    Attributes:
        rest: events below this number were not looked at; None if there are none.
        problem: why its journal is not among them.
    """

    events: list[Event]
    rest: int | None
    problem: str | None


class EventList:
    """Answers requests for events."""

    def __init__(self, marks: SeenMarks) -> None:
        self._marks = marks
        self._requests = Requests(4)

    async def find(self, daemons: list[WatchedDaemon], query: EventQuery) -> dict[str, Any]:
        """The body of an answer; daemons that do not answer are named."""
        found = dict(zip(daemons, await asyncio.gather(*(self._of(daemon, query) for daemon in daemons))))
        lists = [[(daemon, event) for event in part.events] for daemon, part in found.items()]
        # Of each daemon in the order of its numbers, so that the cursor leaves out none of those that are not shown.
        rows = list(heapq.merge(*lists, key=lambda row: -row[1].at))
        shown, left = rows[: query.limit], rows[query.limit :]
        below = {daemon.name: event.number for daemon, event in shown}
        held = {daemon.name for daemon, _ in left}
        below |= {row.name: part.rest for row, part in found.items() if row.name not in held and part.rest is not None}
        more = bool(left) or any(part.rest is not None for part in found.values())
        cursor = {**(query.cursor or {}), **below}
        return {
            "events": [self.row(daemon, event) for daemon, event in sorted(shown, key=lambda row: -row[1].at)],
            "cursor": base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode() if more else None,
            "missing": [{"daemon": row.name, "reason": part.problem} for row, part in found.items() if part.problem],
        }

    async def one(self, daemon: WatchedDaemon, id: str) -> Event | None:
        """An event by its id: its instance and its number, as `Event.id` says.

        Raises:
            AwayError: the daemon does not answer.
        """
        kept = next((event for event in daemon.events if event.id == id), None)
        number = id.rpartition("-")[2]
        if kept is not None or not daemon.api.exists or not number.isdecimal() or len(number) > 18:
            return kept
        found = await self._of(daemon, EventQuery(limit=1, cursor={daemon.name: int(number) + 1}))
        if found.problem:
            raise AwayError(found.problem)
        return next((event for event in found.events if event.id == id), None)

    def row(self, daemon: WatchedDaemon, event: Event) -> dict[str, Any]:
        """An event, as the page gets it."""
        row: dict[str, Any] = msgspec.to_builtins(event)
        mark = self._marks.of(event.id)
        seen = mark and {"by": mark.by, "at": mark.at}
        return {**row, "daemon": daemon.name, "has_snapshot": event.snapshot is not None, "seen": seen}

    async def _of(self, daemon: WatchedDaemon, query: EventQuery) -> _Found:
        """Those of one daemon. Marks are not known to its journal, which is asked in turns for enough of them."""
        found = await self._turn(daemon, query)
        if query.seen is None:
            return found
        kept = self._fitting(found.events, query)
        for _ in range(_MAX_TURNS - 1):
            if len(kept) >= query.limit or found.rest is None or found.problem:
                break
            turn = msgspec.structs.replace(query, limit=MAX_LIMIT, cursor={daemon.name: found.rest})
            found = await self._turn(daemon, turn)
            kept += self._fitting(found.events, query)
        if len(kept) > query.limit:
            return _Found(kept[: query.limit], kept[query.limit - 1].number, found.problem)
        return _Found(kept, found.rest, found.problem)

    def _fitting(self, events: list[Event], query: EventQuery) -> list[Event]:
        return [event for event in events if (self._marks.of(event.id) is not None) == (query.seen == "yes")]

    async def _turn(self, daemon: WatchedDaemon, query: EventQuery) -> _Found:
        reason = None
        if daemon.api.exists:
            forwarded = _forwarded(query, daemon.name)
            try:
                answer = await self._requests.send(daemon.api, "GET", "events", query=forwarded)
                if answer.status == 200:
                    events = msgspec.json.decode(answer.body, type=_Page).events[::-1]
                    return _Found(events, events[-1].number if len(events) >= query.limit else None, None)
                reason = answer.error
            except (AwayError, msgspec.MsgspecError) as error:
                reason = str(error)[:_MAX_TEXT]
        rows = [event for event in reversed(daemon.events) if _matches(event, query, daemon.name)]
        more = len(rows) > query.limit
        return _Found(rows[: query.limit], rows[query.limit - 1].number if more else None, reason)


def _forwarded(query: EventQuery, daemon: str) -> dict[str, str]:
    """The parameters of the daemon's own API."""
    names = {"source": query.source, "rule": query.rule, "kind": query.type, "label": query.label}
    names["attribute"] = query.attribute
    found = {name: value for name, value in names.items() if value is not None}
    found["limit"] = str(query.limit)
    found["before"] = str((query.cursor or {}).get(daemon, 1 << 62))
    for name, seconds in (("from", query.after), ("until", query.before)):
        if seconds is not None:
            found[name] = str(max(0, min(1 << 62, round(seconds * 1e9))))
    return found


def _matches(event: Event, query: EventQuery, daemon: str) -> bool:
    wanted = (
        (query.source, event.source),
        (query.rule, event.rule),
        (query.type, event.kind),
        (query.label, event.label),
    )
    return (
        all(value is None or value == own for value, own in wanted)
        and (query.attribute is None or _has(event, query.attribute))
        and (query.after is None or event.at >= query.after * 1e9)
        and (query.before is None or event.at < query.before * 1e9)
        and event.number < (query.cursor or {}).get(daemon, 1 << 62)
    )


def _has(event: Event, attribute: str) -> bool:
    """Whether an event is about an attribute, NAME or NAME=VALUE."""
    name, equals, value = attribute.partition("=")
    own = event.attribute
    return own is not None and own.name == name and (not equals or own.value == value)
