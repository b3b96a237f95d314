"""Evidence over HTTP: the folder that `lookout recordings export --evidence` writes, as a tar that lies nowhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple, TypeVar

import msgspec
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from daemon.clock import Clock, utc_text
from daemon.errors import LookoutError
from daemon.http.access import caller_of
from daemon.http.bodies import read_body
from daemon.http.operation import Answer, Operation
from daemon.playback.audit import Audit
from daemon.playback.clips import nothing
from daemon.playback.evidence_settings import EvidenceSettings
from daemon.playback.opened import OpenedStore
from daemon.playback.queries import Query, Times, check_times, source_of, time_of
from daemon.playback.sending import CutOffError, Streamed, plain
from daemon.playback.stores import Stores
from daemon.playback.turns import VIEWER, Turns
from daemon.playback.workers import StoreWorkers
from daemon.recording.evidence.background import Background, digests_of, no_events, told_events
from daemon.recording.evidence.content import Evidence, EvidenceOrder
from daemon.recording.evidence.signing import SigningKey, read_key
from daemon.recording.evidence.tar import tar_of
from daemon.recording.index import IndexReader
from daemon.recording.records import Gap
from daemon.recording.store import Store
from daemon.recording.timeline import Span

T = TypeVar("T")
log = structlog.get_logger(__name__)
TAR: Final = Answer("A tar of the folder", media_type="application/x-tar")
LONGEST_NS: Final = 3_600_000_000_000
_LARGEST: Final = 4 << 30  # bytes
_AT_ONCE: Final = 4
_PIECE: Final = 256 << 10
_READ_S: Final = 60.0  # for what lies in no store
_UNKNOWN: Final = "no source of this name was configured when the API of recordings began"


class ExportOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A time to export.

    Attributes:
        begin, end: ISO 8601 with a zone, or UTC ns.
        store: None for the one that has most of it.
        evidence: true; other exports are clips.
    """

    begin: str | int = msgspec.field(name="from")
    end: str | int = msgspec.field(name="to")
    evidence: bool
    store: str | None = None


class _Held(NamedTuple):
    """The part of a time that a store has.

    Attributes:
        recorded: ns.
        bytes: of the files.
    """

    recorded: int
    bytes: int
    files: int
    gaps: list[Gap]


class Exports:
    """The event loop's thread alone uses it. Without the key that is to sign there is no evidence, but all else."""

    def __init__(self, stores: Stores, audit: Audit, clock: Clock, settings: EvidenceSettings) -> None:
        self._stores, self._audit, self._clock, self._settings = stores, audit, clock, settings
        self._readers = ThreadPoolExecutor(_AT_ONCE, "evidence")
        self._key: SigningKey | None = None
        self._digests: list[str] | None = None  # of models, once they were read
        try:
            self._key = read_key(settings.key) if settings.key else None
        except LookoutError as error:
            log.error("evidence cannot be signed, so there is none until its key can be used", reason=str(error))
        self._turns = Turns("evidence is being sent", 409, of_viewer=1, of_token=3, of_all=_AT_ONCE)

    def operations(self) -> list[Operation]:
        return [
            Operation("POST", "/api/v1/recordings/{source}/exports", self._export, "operate", "A time as evidence",
                      {200: TAR}, (400, 404, 409, 422, 503), (VIEWER,), body=ExportOrder),
        ]  # fmt: skip

    async def _export(self, request: Request) -> Response:
        source, _ = source_of(request), Query(request)
        leave = self._turns.take(request)  # before the body, which may come slowly
        try:
            order = _order(await read_body(request))
            times = check_times(time_of("from", order.begin), time_of("to", order.end), LONGEST_NS)
            return await self._sent(request, source, times, order.store, leave)
        except BaseException:
            leave()
            raise

    async def _sent(
        self, request: Request, source: str, times: Times, store_name: str | None, leave: Callable[[], None]
    ) -> Response:
        caller, now = caller_of(request).name, self._clock.utc_ns()
        answers = await self._stores.of_source(source, partial(_held, source, times), store_name)
        name, held = max(answers.found.items(), key=lambda row: (row[1].recorded, row[1].files))
        if not held.files:
            leave()
            return nothing(held.gaps, answers.failed)
        if held.bytes > _LARGEST:
            raise HTTPException(400, f"the files have more than {_LARGEST >> 30} GiB: ask for less")
        key, background = await self._signing_key(), await self._background(source, times)
        order = EvidenceOrder(source, *times, now, caller, background, key)
        store = self._stores.store(name)
        stream = await store.ask(partial(_TarStream, order))
        try:
            first = await store.ask(stream.read)
        except BaseException:
            store.later(stream.close)
            raise
        self._audit.tell(
            request, "evidence is exported", source=source, store=name, begin=times.begin, end=times.end,
            signed=key is not None,
        )  # fmt: skip
        headers = {
            "Content-Disposition": f'attachment; filename="{stream.name}.tar"', "Cache-Control": "private, no-store",
            "X-Content-Type-Options": "nosniff",
        }  # fmt: skip
        pieces = _pieces(store, stream, first)
        return Streamed(pieces, 200, headers, "application/x-tar", on_end=partial(_on_end, store, stream, leave))

    async def _signing_key(self) -> SigningKey | None:
        """
        Raises:
            HTTPException: 503: it cannot be used.
        """
        path = self._settings.key
        if self._key is None and path is not None:
            try:
                self._key = await self._read(partial(read_key, path))
            except LookoutError as error:
                raise HTTPException(503, f"evidence cannot be signed: {error}") from error
            if self._key is None:
                raise HTTPException(503, f"evidence cannot be signed: the key was not read within {_READ_S:.0f} s")
        return self._key

    async def _background(self, source: str, times: Times) -> Background:
        """Journal and models lie in no store, and a large file takes longer than a store may for an answer."""
        settings, known = self._settings, self._settings.sources.get(source)
        reading = [self._read(partial(told_events, settings.journal, source, *times))]
        if self._digests is None:
            reading.append(self._read(partial(digests_of, settings.models)))
        events, *digests = await asyncio.gather(*reading)
        self._digests = digests[0] if digests else self._digests
        if events is None:
            events = no_events(f"the journal was not read within {_READ_S:.0f} s")
        reason = None if known is not None else _UNKNOWN
        return Background(known, reason, settings.journal, self._digests or (), events)

    async def _read(self, work: Callable[[], T]) -> T | None:
        """None if it takes too long."""
        try:
            return await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(self._readers, work), _READ_S)
        except asyncio.TimeoutError:
            return None


def _on_end(store: StoreWorkers, stream: _TarStream, leave: Callable[[], None]) -> None:
    leave()
    store.later(stream.close)


class _TarStream:
    """A tar that a thread of the store makes, piece by piece; by another one each time, perhaps.

    Attributes:
        name: of its folder.
    """

    def __init__(self, order: EvidenceOrder, opened: OpenedStore) -> None:
        at = utc_text(order.begin).replace("+00:00", "Z").replace(":", "")
        self.name = f"{plain(order.source)}-{at}"
        self._store = Store.open(opened.store.path, uuid=opened.store.uuid, makes=False)
        try:
            self._index = IndexReader(self._store)
        except BaseException:
            self._store.close()
            raise
        self._pieces = tar_of(Evidence(self._store, self._index, order), self.name, order.made_at)
        self._lock = threading.Lock()
        self._is_over = False

    def read(self, _: OpenedStore) -> bytes:
        """Some more; empty at the end.

        Raises:
            LookoutError: there is nothing, or it cannot be read.
        """
        with self._lock:
            found = bytearray()
            while not self._is_over and len(found) < _PIECE and (piece := next(self._pieces, None)) is not None:
                found += piece
        if self._is_over:  # said meanwhile
            self.close()
        return bytes(found)

    def close(self) -> None:
        """A second call does nothing. A read that a file system holds does it when it returns."""
        self._is_over = True
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._pieces.close()
            self._index.close()
            self._store.close()
        finally:
            self._lock.release()


async def _pieces(store: StoreWorkers, stream: _TarStream, first: bytes) -> AsyncIterator[bytes]:
    piece = first
    try:
        while piece:
            yield piece
            piece = await store.ask(stream.read)
    except (HTTPException, LookoutError) as error:
        reason = error.detail if isinstance(error, HTTPException) else str(error)
        log.warning("evidence is cut off", store=store.name, reason=reason)
        raise CutOffError(reason) from error


def _order(body: bytes) -> ExportOrder:
    """
    Raises:
        HTTPException: 422: it is none.
    """
    try:
        order = msgspec.json.decode(body, type=ExportOrder)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise HTTPException(422, f"the body is no export: {error}") from error
    if not order.evidence:
        raise HTTPException(422, "evidence is to be true: an MP4 comes from clip.mp4")
    return order


def _held(source: str, times: Times, opened: OpenedStore) -> _Held:
    rows = opened.index.timeline(source, *times)
    recorded = sum(row.end - row.begin for row in rows if isinstance(row, Span))
    sizes, files = opened.index.file_sizes(source, *times), opened.files(source, *times)
    return _Held(recorded, sum(sizes.values()), len(files), [row for row in rows if isinstance(row, Gap)])
