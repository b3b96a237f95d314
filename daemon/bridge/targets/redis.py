"""Streams of Redis and Valkey.

A batch is one transaction: either all of it is in the streams, in its order, or nothing. Entries have the ids that the
server gives them, which are its time. Ids of the bridge's own would have to grow whatever happens to the spool, and
whoever else writes to the stream; where they did not, the server would refuse what it does not have. So records that
may have arrived before are looked for in the stream itself, and `WATCH` sees to it that they do not arrive meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, OutOfMemoryError, RedisError, ResponseError, WatchError
from redis.retry import Retry

from daemon.bridge.formats.port import formatter
from daemon.bridge.port import AwayError
from daemon.bridge.records import Delivery, Encoded, Figure
from daemon.bridge.states import StateBoard
from daemon.bridge.targets.credentials import secret_of, tls_files
from daemon.bridge.targets.opening import TargetContext
from daemon.bridge.targets.outgoing import Batch, Outgoing, figures_of
from daemon.config.brokers import redis_place
from daemon.config.targets import RedisTarget
from daemon.redact import printable

_CONNECT_S, _ANSWER_S = 3.0, 3.0
_DELIVER_NS, _SIGN_NS = 6_000_000_000, 5_000_000_000  # with one answer that does not come it is less than ten seconds
_TRIES = 3  # of a transaction that others' entries interrupt
_LOOKED_AT, _PAGE = 400, 100  # of the newest entries of a stream; in one answer
_T = TypeVar("_T")


class RedisConnection:
    """See `daemon.bridge.port.Connection`. Any thread may close it."""

    def __init__(self, target: RedisTarget, context: TargetContext) -> None:
        self._target, self._clock = target, context.clock
        self._formatter = formatter(target.format)
        self._place = redis_place(target.url.reveal())
        self._is_closed = False
        self._client = self._made(context.id)
        self._asked_at = self._clock.monotonic_ns()
        try:
            self._call(self._client.ping)
        except BaseException:
            self.close()
            raise

    def deliver(self, batch: Sequence[Delivery]) -> Sequence[str | None]:
        out = Batch(batch, self._formatter, self._target.stream, str)
        sought: dict[str, set[bytes]] = {}  # ids, by stream
        for row in out.messages:
            if batch[row.place].is_repeated:
                sought.setdefault(row.topic, set()).add(row.id.encode())
        until = self._clock.monotonic_ns() + _DELIVER_NS
        for attempt in range(_TRIES):
            try:
                # Another writer of the stream may hinder this for ever: better twice than never.
                self._call(partial(self._transact, out, until, sought if attempt + 1 < _TRIES else {}))
                break
            except WatchError:
                continue
        self._asked_at = self._clock.monotonic_ns()
        return out.results()

    def show(self, figures: Sequence[Figure]) -> int:
        failed: set[int] = set()
        pipeline = self._client.pipeline(transaction=False)
        rows = list(figures_of(figures, self._formatter, self._target.stream, str, failed))
        for place, stream, part in rows:
            figure = figures[place]
            self._add(pipeline, stream, {"source": figure.source, "daemon": figure.daemon}, part)
        answers = self._call(lambda: pipeline.execute(raise_on_error=False))
        failed.update(place for (place, _, _), answer in zip(rows, answers) if isinstance(answer, Exception))
        return len(figures) - len(failed)

    def tend(self, states: StateBoard) -> None:
        del states
        now = self._clock.monotonic_ns()
        if now - self._asked_at >= _SIGN_NS:
            self._asked_at = now
            self._call(self._client.ping)

    def close(self) -> None:
        self._is_closed = True
        self._client.close()
        self._client.connection_pool.disconnect(inuse_connections=True)

    def _transact(self, out: Batch, until: int, sought: Mapping[str, set[bytes]]) -> None:
        """Add what is not there yet, all or nothing: of the first messages, up to one whose stream could not be read in
        time. The next batch begins with it.

        Raises:
            WatchError: somebody else has added something meanwhile.
        """
        with self._client.pipeline(transaction=True) as pipeline:
            known = self._known(pipeline, sought, until) if sought else {}
            rows = [*takewhile(lambda row: row.topic in known or row.topic not in sought, out.messages)]
            there = [row for row in rows if row.id.encode() in known.get(row.topic, ())]
            added = [row for row in rows if row.id.encode() not in known.get(row.topic, ())]
            for message in added:
                fields = {"id": message.id, "source": message.record.source, "daemon": message.record.daemon}
                self._add(pipeline, message.topic, fields, message.encoded)
            answers = pipeline.execute(raise_on_error=False) if added else ()
        for message in there:
            out.confirm(message)
        self._settle(out, added, answers)

    def _known(self, pipeline: Any, sought: Mapping[str, set[bytes]], until: int) -> dict[str, set[bytes]]:
        """Which ids are in the streams that could be read in time; all are watched from here on.

        The first is always among them, however little of it could be read: better twice than never.
        """
        known: dict[str, set[bytes]] = {}
        pipeline.watch(*sought)
        for stream, ids in sought.items():
            found, is_whole = self._found(pipeline, stream, ids, until)
            if is_whole or not known:
                known[stream] = found
            if not is_whole:
                break
        pipeline.multi()
        return known

    def _found(self, pipeline: Any, stream: str, ids: set[bytes], until: int) -> tuple[set[bytes], bool]:
        """Which ids are among the newest entries, and whether all of these could be read in time."""
        found, newest = set[bytes](), "+"
        for _ in range(_LOOKED_AT // _PAGE):
            try:
                rows = pipeline.xrevrange(stream, max=newest, count=_PAGE)
            except ResponseError:
                break  # it is no stream: the answer to XADD says so
            found |= ids.intersection(fields.get(b"id") for _, fields in rows)
            if found == ids or len(rows) < _PAGE:
                break
            if self._clock.monotonic_ns() > until:
                return found, False
            newest = rows[-1][0].decode()
        return found, True

    def _add(self, pipeline: Any, stream: str, fields: dict[str, str], part: Encoded) -> None:
        row: dict[str, str | bytes] = {**fields, "content_type": part.content_type}
        row |= {f"ce_{name}": value for name, value in part.attributes}
        if part.suffix:
            row["topic"] = part.suffix
        row["body"] = part.body
        pipeline.xadd(stream, row, maxlen=self._target.max_length, approximate=True)

    def _settle(self, out: Batch, added: Sequence[Outgoing], answers: Sequence[object]) -> None:
        failure: str | None = None
        for message, answer in zip(added, answers):
            if not isinstance(answer, Exception):
                out.confirm(message)
            elif "WRONGTYPE" in str(answer):
                out.refuse(message, f"the key {message.topic} holds something else than a stream: rename one of them")
            else:
                failure = failure or _reason(answer)
        if failure:
            raise AwayError(f"redis at {self._place.shown}: {failure}", settled=out.results())

    def _call(self, request: Callable[[], _T]) -> _T:
        """
        Raises:
            AwayError: there is no answer, or not the one that was asked for.
        """
        try:
            return request()
        except WatchError:
            raise
        except (RedisError, OSError) as error:
            raise AwayError(f"redis at {self._place.shown}: {_reason(error)}") from None  # it may show what was sent
        except Exception:
            if not self._is_closed:
                raise
            # Another thread has closed it, which the library is not made for.
            raise AwayError("the connection is closed") from None

    def _made(self, id: str) -> redis.Redis:
        target, place = self._target, self._place
        password = secret_of(target.password, target.password_file, "password_file")
        where: dict[str, Any] = {"unix_socket_path": place.path} if place.path else {
            "host": place.host, "port": place.port, "socket_keepalive": True,
            **(_tls(target) if place.is_encrypted else {}),
        }  # fmt: skip
        return redis.Redis(
            **where,
            db=place.database,
            username=target.user.reveal() if target.user else None,
            password=password,
            socket_connect_timeout=_CONNECT_S,
            socket_timeout=_ANSWER_S,
            retry=Retry(NoBackoff(), 0),
            client_name=f"lookout-{id}",
        )


def connect(target: RedisTarget, context: TargetContext) -> RedisConnection:
    """See `daemon.bridge.targets.opening.open_target`."""
    return RedisConnection(target, context)


def _tls(target: RedisTarget) -> dict[str, Any]:
    tls_files(target.ca_file, target.certificate_file, target.key_file)  # says which of them cannot be read
    files = {"ca_certs": target.ca_file, "certfile": target.certificate_file, "keyfile": target.key_file}
    named = {f"ssl_{key}": str(file) for key, file in files.items() if file is not None}
    return {"ssl": True, "ssl_cert_reqs": "required", "ssl_check_hostname": True, **named}


def _reason(error: BaseException) -> str:
    """Why, in words that help."""
    text = printable(str(error).rpartition(" of pipeline caused error: ")[2])[:300]  # before it is what was sent
    if isinstance(error, OutOfMemoryError) or "OOM" in text:
        return "it has no memory left (maxmemory) and takes nothing: what waits is told when it has"
    if isinstance(error, NoPermissionError) or "NOPERM" in text:
        return f"this user may not do that: {text}"
    if "MOVED" in text or "CROSSSLOT" in text:
        return "it is part of a cluster that has this stream elsewhere: clusters of Redis are not supported"
    return text or type(error).__name__
