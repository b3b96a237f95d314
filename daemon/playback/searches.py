"""Rules that are asked of the past over HTTP: lines of JSON as they are found, by a process for each search."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import structlog
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from daemon.clock import Clock
from daemon.http.bodies import read_body
from daemon.http.operation import Answer, Operation
from daemon.playback.audit import Audit
from daemon.playback.listings import LONGEST_NS
from daemon.playback.opened import OpenedStore, PlayPlace
from daemon.playback.queries import Query, Times, check_times, time_of
from daemon.playback.search_process import SearchTask
from daemon.playback.sending import Streamed
from daemon.playback.stores import Stores
from daemon.playback.turns import VIEWER, Turns
from daemon.recording.search.answers import error_line
from daemon.recording.search.asked import Asked, rule_from
from daemon.recording.timeline import Span
from daemon.system.children import Child, reap, spawn

log = structlog.get_logger(__name__)
_HEADERS: Final = {"Cache-Control": "private, no-store", "X-Content-Type-Options": "nosniff"}
_LIMIT_S = 1800.0  # of a search: a camera's day takes about a minute (`python -m tests.bench search`)
_BEGIN_S = 60.0  # niced, on a machine that is busy with frames
_RETRY_S = "5"
_MAX_LINE = 1 << 20
_NDJSON: Final = Answer("A line of JSON each: event, unseen, progress; and the last: end, or error",
                        media_type="application/x-ndjson")  # fmt: skip


class SearchOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The question of a client.

    Attributes:
        rule: as the configuration of a source has it.
        begin, end: ISO 8601 with a zone, or UTC ns.
        store: the one to ask; None for the one that has most of the time.
    """

    source: str
    rule: dict[str, Any]
    begin: str | int = msgspec.field(name="from")
    end: str | int = msgspec.field(name="to")
    store: str | None = None


class Searches:
    """The event loop's thread alone uses it.

    Args:
        places: of all stores.
        limit_s: for a search.
    """

    def __init__(
        self, stores: Stores, places: Sequence[PlayPlace], audit: Audit, clock: Clock, limit_s: float = _LIMIT_S
    ) -> None:
        self._stores, self._audit, self._clock, self._limit_s = stores, audit, clock, limit_s
        self._places = {place.name: place for place in places}
        self._turns = Turns("searches run", 429, of_viewer=1, of_token=2, of_all=3)

    def operations(self) -> list[Operation]:
        return [
            Operation("POST", "/api/v1/search", self._search, "view", "Events that a rule would have given",
                      {200: _NDJSON}, (400, 404, 422, 429, 503), (VIEWER,), body=SearchOrder),
        ]  # fmt: skip

    async def _search(self, request: Request) -> Response:
        Query(request)
        leave = self._turns.take(request)  # before the body, which may come slowly
        try:
            order = _order(await read_body(request))
            rule = await run_in_threadpool(rule_from, order.rule)  # thousands of points take a while to check
            now = self._clock.utc_ns()
            times = check_times(time_of("from", order.begin), min(time_of("to", order.end), now), LONGEST_NS)
            store = await self._best(order, times)
            place = self._places[store]
            task = SearchTask(place.path, place.must_be_mount, Asked(order.source, [rule], *times))
            running = await run_in_threadpool(_started, task)
        except BaseException:
            leave()
            raise
        self._audit.tell(
            request, "the past is searched", source=order.source, store=store, begin=times.begin, end=times.end,
            rule=rule.name,
        )  # fmt: skip
        lines, on_end = running.lines(self._limit_s), partial(_end, running, leave)
        return Streamed(lines, 200, _HEADERS, _NDJSON.media_type, on_end=on_end)

    async def _best(self, order: SearchOrder, times: Times) -> str:
        """The store that has most of a time."""
        answers = await self._stores.of_source(order.source, partial(_recorded, order.source, times), order.store)
        return max(answers.found, key=lambda name: answers.found[name])


class _Running:
    """A process that searches."""

    def __init__(self, child: Child, mine: socket.socket) -> None:
        self._child, self._mine = child, mine
        self._writer: asyncio.StreamWriter | None = None

    async def lines(self, limit_s: float) -> AsyncIterator[bytes]:
        """The lines that it finds. The last one is always an end or an error."""
        self._mine.setblocking(False)
        reader, self._writer = await asyncio.open_connection(sock=self._mine, limit=_MAX_LINE)
        clock, last = asyncio.get_running_loop().time, b""
        deadline = clock() + limit_s
        while True:
            try:
                line = await asyncio.wait_for(reader.readline(), max(0.0, deadline - clock()))
            except asyncio.TimeoutError:
                yield error_line(f"it took longer than {limit_s:.0f} s: ask for a shorter time")
                return
            except ValueError:
                yield error_line(f"an answer has more than {_MAX_LINE >> 20} MiB: ask for a shorter time")
                return
            except OSError:
                line = b""
            if not line.endswith(b"\n"):
                break
            last = line
            yield line
        if not last.startswith((b'{"end"', b'{"error"')):
            log.error("a search ended before its end", code=self._child.poll())
            yield error_line("the search was ended: its process was killed, or failed; ask again")

    def close(self) -> None:
        """End it."""
        if self._writer is None:
            self._mine.close()
        else:
            self._writer.close()
        self._child.kill()
        reap(self._child, 0.0)


def _end(running: _Running, leave: Callable[[], None]) -> None:
    running.close()
    leave()


def _started(task: SearchTask) -> _Running:
    """
    Raises:
        HTTPException: 503: the system has no process for it.
    """
    mine, theirs = socket.socketpair()
    with theirs:
        try:
            child = spawn("daemon.playback.search_process", task, [theirs.fileno()], begin_s=_BEGIN_S)
            return _Running(child, mine)
        except OSError as error:
            mine.close()
            raise HTTPException(503, f"no process for a search: {error.strerror}", {"Retry-After": _RETRY_S}) from error


def _order(body: bytes) -> SearchOrder:
    """
    Raises:
        HTTPException: 422: it is none.
    """
    try:
        return msgspec.json.decode(body, type=SearchOrder)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise HTTPException(422, f"the body is no search: {str(error)[:200]}") from error


def _recorded(source: str, times: Times, opened: OpenedStore) -> int:
    """Ns of a time that are recorded."""
    return sum(row.end - row.begin for row in opened.index.timeline(source, *times) if isinstance(row, Span))
