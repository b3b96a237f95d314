"""Changes under a prefix as etcd sends them, over a connection that is asked for anew where it is silent."""

from __future__ import annotations

import ssl
from http.client import HTTPException, HTTPResponse
from select import POLLIN, poll
from time import monotonic

import msgspec

from daemon.etcd.answers import Event, WatchAnswer, WatchLine, decoder
from daemon.etcd.client import EtcdClient, post
from daemon.etcd.errors import CompactedError, EtcdAwayError, EtcdError
from daemon.etcd.faults import Refusal, connection_fault, refusal, refusal_of
from daemon.etcd.requests import end_of

_CHUNK = 1 << 20
_LINE = decoder(WatchLine)


class Watch:
    """One stream of changes. One thread uses it. It ends with an error; make another one from `revision`.

    A watch of an endpoint that has lost its leader ends with EtcdAwayError (`hasleader`). A peer that is silent for
    another reason is not seen here: the caller makes another watch after some silence.

    Attributes:
        revision: the next one to watch from.

    Raises:
        EtcdAwayError: the endpoint does not answer; the next watch tries another.
        CompactedError: `revision` is no longer there.
        EtcdError: etcd refuses.
    """

    def __init__(self, client: EtcdClient, prefix: bytes, revision: int) -> None:
        self.revision = revision
        self._client = client
        self._endpoint = client.endpoints()[0]
        self._connection = client.http.connection(self._endpoint)
        self._rest = b""
        self._received: list[WatchAnswer] = []
        self._answer = self._opened(prefix)
        try:
            self._wait_until_created()
        except BaseException:
            self.close()
            raise

    def events(self, wait_s: float) -> list[Event]:
        """Changes that are there, after so many seconds at most; empty without one."""
        until = monotonic() + wait_s
        found = self._arrived()
        while not found and self._has_data(until - monotonic()):
            self._read()
            found = self._arrived()
        if found:
            self.revision = found[-1].kv.mod_revision + 1
        return found

    def _arrived(self) -> list[Event]:
        found = [event for answer in self._received for event in answer.events]
        self._received.clear()
        return found

    def close(self) -> None:
        self._connection.close()

    def _opened(self, prefix: bytes) -> HTTPResponse:
        wanted = {"key": prefix, "range_end": end_of(prefix), "start_revision": self.revision}
        body = msgspec.json.encode({"create_request": wanted})
        request = post("/v3/watch", body, self._client.token(), **{"Grpc-Metadata-hasleader": "true"})
        try:
            silence_s = self._client.settings.limit_s
            answer = self._connection.stream(request, self._limit(), silence_s, chunks=False)
            content = b"" if answer.status == 200 else answer.read(_CHUNK)
        except (OSError, HTTPException) as error:
            raise self._lost(error) from error
        if answer.status != 200:
            self._connection.close()
            raise self._placed(refusal(answer.status, content, self._client.settings))
        return answer

    def _wait_until_created(self) -> None:
        until = self._limit()
        self._read()  # without a look at the socket: it may have come with the headers
        while not any(answer.created for answer in self._received):
            if not self._has_data(until - monotonic()):
                raise self._lost(TimeoutError())
            self._read()

    def _has_data(self, wait_s: float) -> bool:
        """Whether a read returns at once. The response keeps nothing back, because each read takes all that it has."""
        end = self._connection.raw_socket
        if isinstance(end, ssl.SSLSocket) and end.pending() > 0:
            return True
        waiting = poll()
        waiting.register(end, POLLIN)
        return bool(waiting.poll(max(0.0, wait_s) * 1000))

    def _read(self) -> None:
        try:
            part = self._answer.read1(_CHUNK)
        except (OSError, HTTPException) as error:
            raise self._lost(error) from error
        if not part:
            raise self._lost(ConnectionResetError("the watch has ended"))
        *lines, self._rest = (self._rest + part).split(b"\n")
        self._received += map(self._checked, filter(None, lines))

    def _checked(self, line: bytes) -> WatchAnswer:
        try:
            decoded = _LINE.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise EtcdError(f"etcd at {self._endpoint}: an answer that cannot be read: {error}") from error
        if decoded.error is not None:
            raise self._refused(decoded.error.message, decoded.error.grpc_code)
        answer = decoded.result or WatchAnswer()
        if answer.compact_revision:
            raise CompactedError(f"etcd at {self._endpoint}: revision {self.revision} is compacted")
        if answer.canceled:
            raise self._refused(answer.cancel_reason.rpartition("desc = ")[2] or "the watch was cancelled", 0)
        return answer

    def _refused(self, text: str, code: int) -> EtcdError:
        return self._placed(refusal_of(Refusal(text, code), self._client.settings))

    def _lost(self, error: Exception) -> EtcdError:
        self._connection.close()
        return self._placed(connection_fault(error, self._client.settings))

    def _placed(self, fault: EtcdError) -> EtcdError:
        if isinstance(fault, EtcdAwayError):
            self._client.prefer_next(self._endpoint)
        return type(fault)(f"etcd at {self._endpoint}: {fault}")

    def _limit(self) -> float:
        return monotonic() + self._client.settings.limit_s


def open_watch(client: EtcdClient, prefix: bytes, revision: int) -> Watch:
    """A watch with a valid token. etcd says "permission denied" to a watch whose token has expired, too."""
    try:
        return Watch(client, prefix, revision)
    except (CompactedError, EtcdAwayError):
        raise
    except EtcdError:
        if client.settings.user is None:
            raise
        client.forget_token()
        return Watch(client, prefix, revision)
