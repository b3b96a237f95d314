"""Events of several daemons in one list, newest first: from their journals, or what the page has heard itself."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.exceptions import HTTPException

from daemon.dashboard.api import AwayError, Requests
from daemon.dashboard.watched import WatchedDaemon
from lookoutd.messages import Event

MAX_LIMIT = 200
_NAMES = ("daemon", "source", "rule", "type", "label", "before", "after", "limit", "cursor")
_MAX_TEXT = 200


class _Page(msgspec.Struct):
    events: list[Event]


class EventQuery(msgspec.Struct):
    """A request for events.

    Attributes:
        before, after: UTC, seconds.
        cursor: for each daemon, events below this number.
    """

    daemon: str | None = None
    source: str | None = None
    rule: str | None = None
    type: str | None = None
    label: str | None = None
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


class EventList:
    """Answers requests for events."""

    def __init__(self) -> None:
        self._requests = Requests(4)

    async def find(self, daemons: list[WatchedDaemon], query: EventQuery) -> dict[str, Any]:
        """The body of an answer; daemons that do not answer are named."""
        found = await asyncio.gather(*(self._of(daemon, query) for daemon in daemons))
        rows = [(daemon, event) for daemon, (events, _) in zip(daemons, found) for event in events]
        rows.sort(key=lambda row: row[1].at, reverse=True)
        shown = rows[: query.limit]
        cursor = dict(query.cursor or {})
        for daemon, event in shown:
            cursor[daemon.name] = min(cursor.get(daemon.name, event.number), event.number)
        more = len(rows) > len(shown) or any(len(events) >= query.limit for events, _ in found)
        return {
            "events": [event_row(daemon, event) for daemon, event in shown],
            "cursor": base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode() if more and shown else None,
            "missing": [{"daemon": daemon.name, "reason": why} for daemon, (_, why) in zip(daemons, found) if why],
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
        events, reason = await self._of(daemon, EventQuery(limit=1, cursor={daemon.name: int(number) + 1}))
        if reason:
            raise AwayError(reason)
        return next((event for event in events if event.id == id), None)

    async def _of(self, daemon: WatchedDaemon, query: EventQuery) -> tuple[list[Event], str | None]:
        """Events of one daemon, newest first, and why its journal is not among them."""
        reason = None
        if daemon.api.exists:
            forwarded = _forwarded(query, daemon.name)
            try:
                answer = await self._requests.send(daemon.api, "GET", "events", query=forwarded)
                if answer.status == 200:
                    return msgspec.json.decode(answer.body, type=_Page).events[::-1], None
                reason = answer.error
            except (AwayError, msgspec.MsgspecError) as error:
                reason = str(error)[:_MAX_TEXT]
        rows = [event for event in reversed(daemon.events) if _matches(event, query, daemon.name)]
        return rows[: query.limit], reason


def event_row(daemon: WatchedDaemon, event: Event) -> dict[str, Any]:
    """An event, as the page gets it."""
    row: dict[str, Any] = msgspec.to_builtins(event)
    return {**row, "daemon": daemon.name, "has_snapshot": event.snapshot is not None}


def _forwarded(query: EventQuery, daemon: str) -> dict[str, str]:
    """The parameters of the daemon's own API."""
    names = {"source": query.source, "rule": query.rule, "kind": query.type, "label": query.label}
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
        and (query.after is None or event.at >= query.after * 1e9)
        and (query.before is None or event.at < query.before * 1e9)
        and event.number < (query.cursor or {}).get(daemon, 1 << 62)
    )
