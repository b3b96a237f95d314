"""NATS JetStream.

Messages of a batch are on their way together. Each names the one before it as the stream's last
(`Nats-Expected-Last-Msg-Id`), so that none overtakes one that was refused. Where others write to the stream as well,
the messages go one by one instead. `Nats-Msg-Id` lets the server drop a message that it has already.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError

from daemon.bridge.formats.port import formatter
from daemon.bridge.port import AwayError
from daemon.bridge.records import Delivery, Encoded, Figure
from daemon.bridge.states import StateBoard
from daemon.bridge.targets.credentials import secret_of, tls_files
from daemon.bridge.targets.nats_login import GuardedClient, credentials_of
from daemon.bridge.targets.opening import TargetContext
from daemon.bridge.targets.outgoing import Batch, Outgoing, figures_of
from daemon.config.brokers import Place, nats_place
from daemon.config.targets import NatsTarget
from daemon.redact import printable

_CONNECT_S, _CONNECTS_S, _DELIVER_S, _FIGURES_S, _CLOSE_S = 3, 8.0, 8.0, 2.0, 0.5
_WRONG_LAST_ID, _STORE_FAILED, _TOO_LARGE, _INSUFFICIENT = 10070, 10077, 10054, 10023
_T = TypeVar("_T")
_next_server: dict[str, int] = {}  # place in `servers`, by target; a trial at worst disturbs whose turn it is


class _Ack(msgspec.Struct):
    stream: str = ""
    error: _Error | None = None


class _Error(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class NatsConnection:
    """See `daemon.bridge.port.Connection`. Any thread may close it; a thread of its own has the loop of the library."""

    def __init__(self, target: NatsTarget, context: TargetContext) -> None:
        self._target, self._formatter = target, formatter(target.format)
        self._streams: dict[str, str] = {}  # by subject
        self._is_chained = True
        self._reason: str | None = None  # the connection is lost
        self._answers: dict[str, asyncio.Future[Msg]] = {}
        self._client: Client | None = None
        self._latest: Exception | None = None
        self._inbox, self._sent = "", 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"nats-{target.name}", daemon=True)
        self._thread.start()
        try:
            self._call(self._open(f"lookout-{context.id}"), _CONNECTS_S)
        except BaseException:
            self.close()
            raise

    def deliver(self, batch: Sequence[Delivery]) -> Sequence[str | None]:
        out = Batch(batch, self._formatter, self._target.subject, _token)
        try:
            self._call(self._deliver(out), _DELIVER_S)
        except AwayError as error:
            raise AwayError(str(error), settled=out.results()) from None
        return out.results()

    def show(self, figures: Sequence[Figure]) -> int:
        failed: set[int] = set()
        rows = list(figures_of(figures, self._formatter, self._target.subject, _token, failed))
        self._call(self._show(rows, failed), _FIGURES_S)
        return len(figures) - len(failed)

    def tend(self, states: StateBoard) -> None:
        del states
        if self._reason is not None:
            raise AwayError(self._reason)

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._lose("the connection is closed")
        with suppress(AwayError):
            self._call(self._end(), 2 * _CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(2 * _CLOSE_S)
        if not self._thread.is_alive():
            self._loop.close()

    def _call(self, task: Coroutine[Any, Any, _T], limit_s: float) -> _T:
        """Run in the loop.

        Raises:
            AwayError: it fails, or takes too long.
        """
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(task, limit_s), self._loop)
        try:
            return future.result(limit_s + 1.0)
        except (asyncio.TimeoutError, TimeoutError):
            raise AwayError(f"nats at {self._shown} does not answer within {limit_s:g} s") from None
        except (NatsError, OSError, asyncio.CancelledError) as error:
            raise AwayError(f"nats at {self._shown}: {_said(error)}") from None

    @property
    def _shown(self) -> str:
        return ", ".join(nats_place(server.reveal()).shown for server in self._target.servers)

    def _used(self) -> Client:
        if self._client is None or self._reason is not None:
            raise AwayError(self._reason or "the connection is closed")
        return self._client

    async def _open(self, name: str) -> None:
        """Connect to the first server that takes the login.

        It begins with the one that did so last, or behind the last that failed: the time may be over before the turn
        of those behind some that hang.
        """
        failures: list[str] = []
        servers, name_of = self._target.servers, self._target.name
        first = _next_server.get(name_of, 0)
        for number in range(first, first + len(servers)):
            _next_server[name_of] = (number + 1) % len(servers)
            place = nats_place(servers[number % len(servers)].reveal())
            client = GuardedClient(is_encrypted=place.is_encrypted)
            try:
                await client.connect(**self._options(place, name))
            except (NatsError, OSError, asyncio.TimeoutError, ValueError) as error:
                failures.append(f"{place.shown}: {_said(self._latest or error)}")
                self._latest = None
                await _close(client)
                continue
            except asyncio.CancelledError:  # the time is over
                await _close(client)
                raise
            _next_server[name_of] = number % len(servers)
            self._client = client
            self._inbox = client.new_inbox()
            await client.subscribe(f"{self._inbox}.*", cb=self._on_answer)
            return
        raise AwayError(f"nats at {'; '.join(failures)}")

    def _options(self, place: Place, name: str) -> dict[str, Any]:
        target = self._target
        login: dict[str, Any] = {}
        if target.credentials_file is not None:
            found = credentials_of(target.credentials_file)
            login = {"signature_cb": found.sign, "user_jwt_cb": found.jwt.encode}
        elif target.user is not None:
            password = secret_of(target.password, target.password_file, "password_file")
            login = {"user": target.user.reveal(), "password": password or ""}
        if place.is_encrypted:
            login["tls"] = tls_files(target.ca_file, target.certificate_file, target.key_file)
        return {
            "servers": [f"{place.scheme}://{place.shown}"], "name": name, "allow_reconnect": False,
            "max_reconnect_attempts": 1, "reconnect_time_wait": 0, "connect_timeout": _CONNECT_S, "ping_interval": 2,
            "max_outstanding_pings": 2, "error_cb": self._on_error, "closed_cb": self._on_closed, **login,
        }  # fmt: skip

    async def _on_error(self, error: Exception) -> None:
        """Not to the log of the library. It says more than what the library raises in the end."""
        self._latest = error

    async def _on_closed(self) -> None:
        if self._client is not None:  # otherwise it is one that was tried in vain
            error = self._client.last_error
            self._lose(f"nats at {self._shown}: {_said(error) if error else 'the server has closed the connection'}")

    def _lose(self, reason: str) -> None:
        self._reason = self._reason or reason
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._give_up)

    def _give_up(self) -> None:
        """Nothing that waits for an answer gets one."""
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(AwayError(self._reason or ""))
                answer.exception()  # so that nobody complains that it was not read

    async def _on_answer(self, message: Msg) -> None:
        answer = self._answers.get(message.subject.rpartition(".")[2])
        if answer is not None and not answer.done():
            answer.set_result(message)

    async def _deliver(self, out: Batch) -> None:
        """Send what may be on its way together, and wait for it, until all is settled."""
        place = 0
        while place < len(out.messages):
            group = self._together(out.messages[place:])
            answers = [await self._send(message, before) for message, before in group]
            try:
                for (message, before), answer in zip(group, answers):
                    if not await self._settle(out, message, before, answer):
                        break
                    place += 1
            finally:
                self._answers.clear()

    def _together(self, waiting: Sequence[Outgoing]) -> list[tuple[Outgoing, str]]:
        """The next messages, each with the id of the one before it in its stream; empty for the first of a stream.

        Where a message may overtake another one, the group ends.
        """
        last: dict[str, str] = {}
        group: list[tuple[Outgoing, str]] = []
        for message in waiting:
            stream = self._streams.get(message.topic, "")
            if group and (not stream or not self._is_chained):
                break
            group.append((message, last.get(stream, "")))
            if not stream:
                break
            last[stream] = _header(message.id)
        return group

    async def _send(self, message: Outgoing, before: str) -> asyncio.Future[Msg]:
        client = self._used()
        self._sent += 1
        token = str(self._sent)
        answer: asyncio.Future[Msg] = self._loop.create_future()
        self._answers[token] = answer
        headers = {**_headers(message.encoded), "Nats-Msg-Id": _header(message.id)}
        if before:
            headers["Nats-Expected-Last-Msg-Id"] = before
        try:
            await client.publish(message.topic, message.encoded.body, f"{self._inbox}.{token}", headers)
        except MaxPayloadError as error:
            answer.set_exception(error)
            answer.exception()
        return answer

    async def _settle(self, out: Batch, message: Outgoing, before: str, answer: asyncio.Future[Msg]) -> bool:
        """Wait for an answer; False if the message must go again, one by one.

        Raises:
            AwayError: nothing goes on now.
        """
        try:
            reply = await answer
        except MaxPayloadError:
            out.refuse(message, f"it has {len(message.encoded.body)} bytes, more than max_payload of the server")
            return True
        if (reply.headers or {}).get("Status") == "503":
            raise AwayError(f"nats at {self._shown}: no stream takes {message.topic}: make one (nats stream add)")
        try:
            ack = msgspec.json.decode(reply.data, type=_Ack)
        except msgspec.DecodeError:
            raise AwayError(f"nats at {self._shown}: somebody else answers on {message.topic}") from None
        if ack.error is None:
            self._streams[message.topic] = ack.stream
            out.confirm(message)
        elif ack.error.err_code == _WRONG_LAST_ID and before:
            self._is_chained = False
            return False
        elif ack.error.err_code == _TOO_LARGE:
            out.refuse(message, f"it has {len(message.encoded.body)} bytes, more than the stream takes")
        else:
            said = printable(ack.error.description)[:200]
            raise AwayError(f"nats at {self._shown}: the stream takes nothing now: {said}")
        return True

    async def _show(self, rows: Sequence[tuple[int, str, Encoded]], failed: set[int]) -> None:
        client = self._used()
        for place, subject, part in rows:
            try:
                await client.publish(subject, part.body, headers=_headers(part))
            except MaxPayloadError:
                failed.add(place)

    async def _end(self) -> None:
        """Close the client, and leave nothing behind in the loop, whatever hangs."""
        if self._client is not None:
            await _close(self._client)
        others = [task for task in asyncio.all_tasks(self._loop) if task is not asyncio.current_task()]
        for task in others:
            task.cancel()


async def _close(client: Client) -> None:
    """It may wait for a server that hangs, or for TLS that never came about."""
    # Some versions have AttributeError where nothing was opened.
    with suppress(asyncio.TimeoutError, NatsError, OSError, AttributeError):
        await asyncio.wait_for(client.close(), _CLOSE_S)


def connect(target: NatsTarget, context: TargetContext) -> NatsConnection:
    """See `daemon.bridge.targets.opening.open_target`."""
    return NatsConnection(target, context)


def _token(name: str) -> str:
    """A name as one token of a subject: dots part tokens."""
    return quote(name, safe="").replace(".", "%2E")


def _header(value: str) -> str:
    """As CloudEvents' binding for NATS has it: no sign may end the line."""
    return quote(value, safe="!#$&'()*+,/:;=?@[]^`{|}")


def _headers(part: Encoded) -> dict[str, str]:
    found = {"Content-Type": part.content_type}
    found |= {f"ce-{name}": _header(value) for name, value in part.attributes}
    return found | ({"Lookout-Topic": _header(part.suffix)} if part.suffix else {})


def _said(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno)  # asyncio has words of its own
    text = printable(str(error)).removeprefix("nats: ").strip("'")[:200]
    return text or type(error).__name__
