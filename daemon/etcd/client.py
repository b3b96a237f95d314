"""A client of etcd: keys, transactions and leases. Any thread may call it; every call has a time limit."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from http.client import HTTPException
from time import monotonic
from typing import TypeVar

import msgspec

from daemon.etcd import answers
from daemon.etcd.answers import (
    GrantAnswer,
    KeepAlive,
    KeyValue,
    PutAnswer,
    RangeAnswer,
    TokenAnswer,
    TxnAnswer,
)
from daemon.etcd.errors import EtcdAwayError, EtcdError, LeaseNotFoundError, TokenError
from daemon.etcd.faults import connection_fault, refusal
from daemon.etcd.requests import Body, end_of, transaction
from daemon.etcd.settings import Endpoint, EtcdSettings, tls_context
from daemon.system.http_client import HttpClient, HttpRequest

T = TypeVar("T")
_PAGE = 4000  # keys of one answer
_MIN_ATTEMPT_S = 0.5
_PUT, _RANGE, _TXN = answers.decoder(PutAnswer), answers.decoder(RangeAnswer), answers.decoder(TxnAnswer)
_GRANT, _KEEP_ALIVE = answers.decoder(GrantAnswer), answers.decoder(KeepAlive)
_TOKEN = answers.decoder(TokenAnswer)


class EtcdClient:
    """Connections are made when they are needed, and kept.

    All methods raise EtcdAwayError if no endpoint answers in time, and EtcdError if etcd refuses. A request may be sent
    twice, to two endpoints: a write must be one that can be repeated.

    Raises:
        EtcdError: a file of TLS cannot be used.
    """

    def __init__(self, settings: EtcdSettings) -> None:
        self.settings = settings
        self.http = HttpClient(tls_context(settings.tls) if settings.tls else None)
        self._lock = threading.Lock()
        self._order = list(settings.endpoints)  # the one that answered last comes first
        self._tokens = _Tokens(self)

    def endpoints(self) -> list[Endpoint]:
        """In the order in which they are tried now."""
        with self._lock:
            return [*self._order]

    def list_prefix(self, prefix: bytes) -> tuple[list[KeyValue], answers.Header]:
        """All keys with a prefix, at one revision, in pages."""
        start, end, found = prefix, end_of(prefix), list[KeyValue]()
        body: Body = {"range_end": end, "limit": _PAGE}
        first: answers.Header | None = None
        while True:
            answer = self.call("/v3/kv/range", {**body, "key": start}, _RANGE)
            first = first or answer.header
            found += answer.kvs
            if not answer.more or not answer.kvs:
                return found, first
            start, body["revision"] = answer.kvs[-1].key + b"\0", first.revision

    def get(self, key: bytes) -> tuple[KeyValue | None, answers.Header]:
        answer = self.call("/v3/kv/range", {"key": key}, _RANGE)
        return (answer.kvs[0] if answer.kvs else None), answer.header

    def count(self, start: bytes, end: bytes) -> int:
        """Number of keys from `start`, up to `end` and without it."""
        return self.call("/v3/kv/range", {"key": start, "range_end": end, "count_only": True}, _RANGE).count

    def put(self, key: bytes, value: bytes, lease: int = 0) -> answers.Header:
        return self.call("/v3/kv/put", {"key": key, "value": value, "lease": lease}, _PUT).header

    def delete(self, key: bytes) -> None:
        self.call("/v3/kv/deleterange", {"key": key}, _PUT)

    def txn(self, compare: Sequence[Body], success: Sequence[Body], failure: Sequence[Body] = ()) -> TxnAnswer:
        return self.call("/v3/kv/txn", transaction(compare, success, failure), _TXN)

    def grant(self, ttl_s: int) -> GrantAnswer:
        """A new lease; etcd may give it a longer time than was asked for."""
        return self.call("/v3/lease/grant", {"TTL": ttl_s}, _GRANT)

    def keep_alive(self, lease: int) -> GrantAnswer:
        """Renew a lease.

        Raises:
            LeaseNotFoundError: it has ended.
        """
        answer = self.call("/v3/lease/keepalive", {"ID": lease}, _KEEP_ALIVE).result
        if answer.ttl <= 0:
            raise LeaseNotFoundError("the lease has ended")
        return answer

    def revoke(self, lease: int) -> None:
        """End a lease; one that has ended already is passed over."""
        try:
            self.call("/v3/lease/revoke", {"ID": lease}, _PUT)
        except LeaseNotFoundError:
            return

    def call(self, path: str, body: Body, decoder: msgspec.json.Decoder[T], limit_s: float | None = None) -> T:
        """Send a request, with a new token if the old one has expired."""
        until = monotonic() + (self.settings.limit_s if limit_s is None else limit_s)
        encoded = msgspec.json.encode(body)
        token = self._tokens.get(until)
        try:
            return self._in_turn(path, encoded, token, decoder, until)
        except TokenError:
            token = self._tokens.renewed(token, until)
            return self._in_turn(path, encoded, token, decoder, until)

    def token(self) -> str:
        """For a request that a caller sends itself."""
        return self._tokens.get(monotonic() + self.settings.limit_s)

    def forget_token(self) -> None:
        """The one that `token` gave was refused."""
        self._tokens.forget()

    def prefer_next(self, endpoint: Endpoint) -> None:
        """An endpoint does not answer: try it last."""
        with self._lock:
            if self._order[0] == endpoint:
                self._order.append(self._order.pop(0))

    def authenticate(self, until: float) -> str:
        user = self.settings.user
        if user is None:
            return ""
        body = msgspec.json.encode({"name": user.name, "password": user.password.reveal()})
        return self._in_turn("/v3/auth/authenticate", body, "", _TOKEN, until).token

    def close(self) -> None:
        self.http.close()

    def _in_turn(self, path: str, body: bytes, token: str, decoder: msgspec.json.Decoder[T], until: float) -> T:
        """Try endpoints until one answers; a refusal is an answer."""
        faults, order = list[str](), self.endpoints()
        for number, endpoint in enumerate(order):
            share = max(_MIN_ATTEMPT_S, (until - monotonic()) / (len(order) - number))
            try:
                return self._attempt(endpoint, path, body, token, decoder, min(until, monotonic() + share))
            except EtcdAwayError as fault:
                faults.append(f"{endpoint}: {fault}")
                self.prefer_next(endpoint)
        raise EtcdAwayError(f"etcd does not answer: {'; '.join(faults)}")

    def _attempt(
        self, endpoint: Endpoint, path: str, body: bytes, token: str, decoder: msgspec.json.Decoder[T], until: float
    ) -> T:
        try:
            answer = self.http.exchange(endpoint, post(path, body, token), until)
        except (OSError, HTTPException) as error:
            raise _placed(connection_fault(error, self.settings), endpoint) from error
        if answer.status != 200:
            raise _placed(refusal(answer.status, answer.content, self.settings), endpoint)
        try:
            return decoder.decode(answer.content)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise EtcdError(f"etcd at {endpoint}: an answer that cannot be read: {error}") from error


class _Tokens:
    """The token of the user, which etcd ends after some minutes, or when it is restarted."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._token = ""

    def get(self, until: float) -> str:
        if self._client.settings.user is None:
            return ""
        return self._token or self.renewed("", until)

    def renewed(self, expired: str, until: float) -> str:
        """Another token than the expired one; one thread asks for it."""
        if not self._lock.acquire(timeout=max(0.0, until - monotonic())):
            raise EtcdAwayError("etcd does not answer: no token in time")
        try:
            if self._token == expired:
                self._token = self._client.authenticate(until)
            return self._token
        finally:
            self._lock.release()

    def forget(self) -> None:
        self._token = ""


def post(path: str, body: bytes, token: str, **further: str) -> HttpRequest:
    """A request with the token, if there is one, and further headers."""
    headers = {"Content-Type": "application/json", **({"Authorization": token} if token else {}), **further}
    return HttpRequest("POST", path, body, headers)


def _placed(fault: EtcdError, endpoint: Endpoint) -> EtcdError:
    """A refusal names its endpoint; where etcd is away, the caller names all of them."""
    return fault if isinstance(fault, EtcdAwayError) else type(fault)(f"etcd at {endpoint}: {fault}")
