"""Locks over HTTP: video that stays until somebody unlocks it."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from daemon.clock import Clock
from daemon.http.access import caller_of
from daemon.http.answers import json_answer
from daemon.http.bodies import read_body
from daemon.http.operation import Answer, Operation, array, record
from daemon.playback.audit import Audit
from daemon.playback.opened import OpenedStore
from daemon.playback.queries import STORE, Query, Times, check_times, id_of, source_of, time_of
from daemon.playback.stores import Stores
from daemon.playback.wanted import wanted_by
from daemon.recording.records import Lock

_LONGEST_NS: Final = 366 * 86_400_000_000_000
_MAX_LOCKS: Final = 10_000  # of a store
_MAX_REASON = 200


class LockOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A time to keep, which may be still to come: `from` and `to`, or the time that `event` wants.

    Attributes:
        begin, end: ISO 8601 with a zone, or UTC ns.
        event: its id.
        reason: for people.
    """

    begin: str | int | None = msgspec.field(name="from", default=None)
    end: str | int | None = msgspec.field(name="to", default=None)
    event: str | None = None
    reason: str


class StoreLock(msgspec.Struct, frozen=True):
    """A lock, and where it is."""

    store: str
    lock: Lock


class LockKeeping:
    """The event loop's thread alone uses it."""

    def __init__(self, stores: Stores, audit: Audit, clock: Clock) -> None:
        self._stores, self._audit, self._clock = stores, audit, clock

    def operations(self) -> list[Operation]:
        one = "/api/v1/recordings/{source}/locks"
        failed = {"type": "object", "additionalProperties": {"type": "string"}}
        locks = record("Locks", {"locks": array(StoreLock).content, "failed": failed}, StoreLock)
        return [
            Operation("GET", one, self._list, "view", "Its locks", {200: Answer("By store", locks)},
                      (400, 404, 503), (STORE,)),
            Operation("POST", one, self._lock, "operate", "Keep a time, in each store that has the source",
                      {201: Answer("By store", locks)}, (400, 404, 409, 422, 503), (STORE,), body=LockOrder),
            Operation("DELETE", "/api/v1/recordings/locks/{id}", self._unlock, "operate", "Keep it no longer",
                      {204: Answer("Done")}, (400, 404, 409, 503), (STORE,)),
        ]  # fmt: skip

    async def _list(self, request: Request) -> Response:
        source, query = source_of(request), Query(request, STORE)
        answers = await self._stores.all(partial(_locks, source), query.text("store"))
        if not answers.found:
            raise HTTPException(404, "nothing was recorded of a source of this name")
        rows = [StoreLock(name, lock) for name, locks in answers.found.items() for lock in locks]
        return json_answer({"locks": rows, "failed": answers.failed})

    async def _lock(self, request: Request) -> Response:
        source, query = source_of(request), Query(request, STORE)
        order = _order(await read_body(request))
        times = await self._times(source, order, query.text("store"))
        caller, now = caller_of(request), self._clock.utc_ns()
        work = partial(_add, source, times, order.reason, caller.name, now)
        answers = await self._stores.of_source(source, work, query.text("store"))
        rows = [StoreLock(name, lock) for name, lock in answers.found.items()]
        for row in rows:
            self._audit.tell(
                request, "video is kept", source=source, store=row.store, lock=row.lock.id, begin=times.begin,
                end=times.end, reason=order.reason,
            )  # fmt: skip
        return json_answer({"locks": rows, "failed": answers.failed}, 201)

    async def _times(self, source: str, order: LockOrder, store: str | None) -> Times:
        if order.event is not None and order.begin is None and order.end is None:
            return check_times(*await wanted_by(order.event, self._stores, source, store), _LONGEST_NS)
        if order.event is not None or order.begin is None or order.end is None:
            raise HTTPException(422, "the body is no lock: give from and to, or event")
        return check_times(time_of("from", order.begin), time_of("to", order.end), _LONGEST_NS)

    async def _unlock(self, request: Request) -> Response:
        id, query = id_of(request), Query(request, STORE)
        store, lock = await self._stores.first(partial(_remove, id), query.text("store"))
        self._audit.tell(
            request, "video is kept no longer", source=lock.source, store=store.name, lock=id, begin=lock.begin,
            end=lock.end,
        )  # fmt: skip
        return Response(status_code=204)


def _order(body: bytes) -> LockOrder:
    """
    Raises:
        HTTPException: 422: it is none.
    """
    try:
        order = msgspec.json.decode(body, type=LockOrder)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise HTTPException(422, f"the body is no lock: {error}") from error
    if not 0 < len(order.reason) <= _MAX_REASON or not order.reason.isprintable():
        raise HTTPException(422, f"reason is to be a line of 1 to {_MAX_REASON} characters")
    return order


def _locks(source: str, opened: OpenedStore) -> list[Lock] | None:
    """None if the store has nothing of the source."""
    found = opened.locks.all(source)
    return found if found or opened.knows(source) else None


def _add(source: str, times: Times, reason: str, by: str, now: int, opened: OpenedStore) -> Lock:
    locks = opened.locks
    if len(locks.all()) >= _MAX_LOCKS:
        raise HTTPException(409, f"the store has {_MAX_LOCKS} locks already: remove some")
    return locks.add(source, times.begin, times.end, reason=reason, by=by, at=now)


def _remove(id: str, opened: OpenedStore) -> Lock | None:
    locks = opened.locks
    return locks.remove(id) if any(lock.id == id for lock in locks.all()) else None
