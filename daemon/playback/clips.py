"""Clips: a time, or what an event wanted, as one MP4."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from daemon.clock import utc_text
from daemon.http.answers import json_answer
from daemon.http.operation import Answer, Operation, Parameter
from daemon.playback.audit import Audit
from daemon.playback.clip_plan import ClipPlan, plan_clip
from daemon.playback.files import MP4
from daemon.playback.opened import OpenedStore
from daemon.playback.queries import FROM, STORE, TO, Query, Times, check_times, source_of
from daemon.playback.ranges import HEADERS, asked_range, range_of
from daemon.playback.sending import Sent, media, plain
from daemon.playback.stores import Stores
from daemon.playback.wanted import wanted_by
from daemon.playback.workers import StoreWorkers
from daemon.recording.records import Gap
from daemon.recording.timeline import Span

LONGEST_NS: Final = 600_000_000_000
_AT_ONCE = 16  # each has some files open
_MAX_TOLD = 16  # pieces and gaps of a header
_EVENT = Parameter("event", {"type": "string"})


class Clips:
    """The event loop's thread alone uses it."""

    def __init__(self, stores: Stores, audit: Audit) -> None:
        self._stores, self._audit = stores, audit
        self._sending = 0

    def operations(self) -> list[Operation]:
        return [
            Operation("GET", "/api/v1/recordings/{source}/clip.mp4", self._clip, "view", "A time as one MP4",
                      {200: MP4, 206: MP4, 304: Answer("As it was")}, (400, 404, 409, 416, 503),
                      (FROM, TO, _EVENT, STORE, *HEADERS)),
        ]  # fmt: skip

    async def _clip(self, request: Request) -> Response:
        source, query = source_of(request), Query(request, FROM, TO, _EVENT, STORE)
        if self._sending >= _AT_ONCE:
            raise HTTPException(503, f"{_AT_ONCE} clips are being sent already", {"Retry-After": "5"})
        times = await self._times(source, query)
        store, gaps, failed = await self._best(source, times, query.text("store"))
        plan = await store.ask(partial(plan_clip, source, *times))
        if plan is None:
            return nothing(gaps, failed)
        sent, tag = Sent(store, plan.parts, plan.beginning), _tag(plan)
        headers = {"ETag": tag, "Accept-Ranges": "bytes"}
        try:
            if request.headers.get("if-none-match") == tag:
                store.later(plan.close)
                return Response(None, 304, headers)
            part = range_of(asked_range(request, tag), sent.size, sent.size)
        except HTTPException:
            store.later(plan.close)
            raise
        facts = {"source": source, "store": store.name, "begin": times.begin, "end": times.end}
        if part.begin:  # a player goes on
            self._audit.tell_once(request, "a clip is sent", tag, **facts)
        else:
            self._audit.tell(request, "a clip is sent", **facts, wanted_by=query.text("event"))
        self._sending += 1
        headers |= {**_headers(source, plan), **part.headers(sent.size)}
        on_end, status = partial(self._on_end, store, plan), 200 if part.is_whole else 206
        return media(request, sent.cut(part.begin, part.end), headers, status=status, on_end=on_end)

    def _on_end(self, store: StoreWorkers, plan: ClipPlan) -> None:
        self._sending -= 1
        store.later(plan.close)

    async def _times(self, source: str, query: Query) -> Times:
        event = query.text("event")
        if event is None:
            return query.times(LONGEST_NS)
        if query.text("from") is not None or query.text("to") is not None:
            raise HTTPException(400, "give from and to, or event")
        return check_times(*await wanted_by(event, self._stores, source, query.text("store")), LONGEST_NS)

    async def _best(
        self, source: str, times: Times, name: str | None
    ) -> tuple[StoreWorkers, list[Gap], dict[str, str]]:
        """The store that has most of a time, what it lacks, and stores that cannot say."""
        answers = await self._stores.of_source(source, partial(_covered, source, times), name)
        store, (_, gaps) = max(answers.found.items(), key=lambda row: row[1][0])
        return self._stores.store(store), gaps, answers.failed


def nothing(gaps: Sequence[Gap], failed: Mapping[str, str]) -> Response:
    """404, with the reason why there is no video; 503 if a store that may have some cannot say."""
    told = [f"{gap.cause}{f' ({gap.detail})' if gap.detail else ''}" for gap in gaps]
    reasons = [*dict.fromkeys(told[:_MAX_TOLD]), *failed.values()]
    error = ": ".join(["nothing is recorded of that time", *(["; ".join(reasons)] if reasons else [])])
    return json_answer({"error": error, "gaps": gaps[:_MAX_TOLD]}, 503 if failed else 404)


def _tag(plan: ClipPlan) -> str:
    """Another one for other pictures: files only grow, so that a place in one of them has the same bytes for good."""
    digest = sha256(plan.beginning)
    for file, offset, size in plan.parts:
        digest.update(f"{file.facts.id} {offset} {size}\n".encode())
    return f'"{digest.hexdigest()[:32]}"'


def _headers(source: str, plan: ClipPlan) -> dict[str, str]:
    """Those that say how the clip came about."""
    begin, end = plan.pieces[0].begin, plan.pieces[-1].end
    told = {
        "begin": begin,
        "end": end,
        "pieces": [msgspec.structs.asdict(piece) for piece in plan.pieces[:_MAX_TOLD]],
        "gaps": [{**msgspec.structs.asdict(gap), "detail": (gap.detail or "")[:100]} for gap in plan.gaps[:_MAX_TOLD]],
        "left_out": max(0, len(plan.pieces) - _MAX_TOLD) + max(0, len(plan.gaps) - _MAX_TOLD),
    }
    at = utc_text(begin).replace("+00:00", "Z").replace(":", "")
    return {
        "Content-Disposition": f'attachment; filename="{plain(source)}-{at}.mp4"',
        "X-Lookout-Clip": json.dumps(told, separators=(",", ":")),  # in ASCII, as headers are
    }


def _covered(source: str, times: Times, opened: OpenedStore) -> tuple[int, list[Gap]]:
    """Ns that are recorded, and why the rest is not."""
    rows = opened.index.timeline(source, *times)
    return sum(row.end - row.begin for row in rows if isinstance(row, Span)), [
        row for row in rows if not isinstance(row, Span)
    ]
