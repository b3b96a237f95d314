"""Servers that pushes go to: any answer over HTTP or TLS, and stand-ins of ntfy and of Telegram's Bot API.

The stand-ins hold to what the real ones document: sizes, forms of headers and bodies, errors.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes
from email.header import decode_header, make_header
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from daemon.bridge.messages import Loss, Notice
from daemon.bridge.records import Record, RecordKind
from daemon.bridge.targets.opening import TargetContext
from daemon.clock import Clock, SystemClock
from lookout.messages import Clip, Event

AT = 1_700_000_000_000_000_000
JPEG = b"\xff\xd8\xff\xe0" + bytes(range(256)) * 8 + b"\xff\xd9"
HERE = ["127.0.0.0/8"]


@dataclass(frozen=True)
class Asked:
    """A request.

    Attributes:
        headers: names in lower case.
        peer: the client's port.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    peer: int


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Callable[[Asked], Reply]


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        """A client that hangs up, or refuses the certificate, is no news here."""


class PushServer:
    """Answers requests by a function, and keeps them.

    Args:
        certificate: PEM files of certificate and key, for TLS.
        port: 0 for any.

    Attributes:
        asked: so far, in order.
    """

    def __init__(
        self, answer: Answer = lambda _: Reply(), certificate: tuple[Path, Path] | None = None, port: int = 0
    ) -> None:
        self.answer, self.asked = answer, list[Asked]()
        self._came = threading.Condition()
        self.is_https = certificate is not None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(self.command, self.path, headers, body, self.client_address[1])
                reply = outer.answer(asked)
                outer.keep(asked)
                self.send_response(reply.status)
                for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply.body)

            do_GET = do_PUT = do_POST  # noqa: N815 - names of http.server

            def log_message(self, *_: object) -> None: ...

        self._listener = _Listener(("127.0.0.1", port), Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            # The handshake is made by the connection's own thread, at its first read.
            self._listener.socket = context.wrap_socket(
                self._listener.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(target=self._listener.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.server_address[1])

    def url(self, path: str = "/hook", host: str = "127.0.0.1") -> str:
        return f"{'https' if self.is_https else 'http'}://{host}:{self.port}{path}"

    def keep(self, asked: Asked) -> None:
        with self._came:
            self.asked.append(asked)
            self._came.notify_all()

    def wait_for(self, count: int, seconds: float = 60.0) -> list[Asked]:
        with self._came:
            assert self._came.wait_for(lambda: len(self.asked) >= count, seconds), f"{len(self.asked)} of {count} came"
            return list(self.asked)

    def close(self) -> None:
        self._listener.shutdown()
        self._listener.server_close()

    def __enter__(self) -> PushServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def raw_server(serve: Callable[[socket.socket, threading.Event], None]) -> Iterator[int]:
    """A port whose connections are served by a function, which may break any rule until the event is set."""
    ending, listening = threading.Event(), socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=one, args=listening.accept()[:1], daemon=True).start()

    def one(end: socket.socket) -> None:
        with suppress(OSError), end:
            serve(end, ending)

    threading.Thread(target=run, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        ending.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


class Ntfy:
    """A stand-in of ntfy.

    Args:
        token: that it wants; None: everybody may publish.
        attachment_bytes: at most; None: it takes none.

    Attributes:
        messages: that were published, as its subscribers get them.
    """

    def __init__(self, token: str | None = None, attachment_bytes: int | None = 2 << 20) -> None:
        self._token, self._attachment_bytes = token, attachment_bytes
        self.messages: list[dict[str, Any]] = []

    def __call__(self, asked: Asked) -> Reply:  # noqa: PLR0911 - a row for each failure that it documents
        if asked.method not in ("POST", "PUT") or not re.fullmatch(r"/[-_A-Za-z0-9]{1,64}", asked.path):
            return _failure(404, 40401, "page not found")
        if self._token is not None and asked.headers.get("authorization") != f"Bearer {self._token}":
            return _failure(401, 40101, "unauthorized")
        names = ("title", "message", "click", "tags", "filename")
        said = {name: _decoded(asked.headers.get(name, "")) for name in names}
        if not re.fullmatch("[1-5]?", asked.headers.get("priority", "")):
            return _failure(400, 40007, "invalid priority parameter")
        picture = None
        if said["filename"]:
            if self._attachment_bytes is None:
                return _failure(400, 40014, "invalid request: attachments not allowed")
            if len(asked.body) > self._attachment_bytes:
                return _failure(413, 41301, "attachment too large, or bandwidth limit reached")
            picture = asked.body
        else:
            said["message"] = asked.body.decode()
        if len(said["message"].encode()) > 4096:
            return _failure(413, 41304, "message too large")  # the real one makes it an attachment
        row = {"id": f"m{len(self.messages)}", "topic": asked.path[1:], "picture": picture, **said}
        self.messages.append({**row, "priority": int(asked.headers.get("priority") or 3)})
        return Reply(200, json.dumps({"id": row["id"], "event": "message", "topic": row["topic"]}).encode())


class Telegram:
    """A stand-in of the Bot API with a chat 123.

    Attributes:
        messages: that were sent to a chat: text and picture.
        calls: names of the methods.
    """

    def __init__(self, token: str, photo_bytes: int = 10 << 20) -> None:
        self._token, self._photo_bytes = token, photo_bytes
        self.messages, self.calls = list[dict[str, Any]](), list[str]()

    def __call__(self, asked: Asked) -> Reply:  # noqa: PLR0911 - a row for each failure that it documents
        found = re.fullmatch(r"(?:/api)?/bot([^/]+)/(\w+)", asked.path)
        if found is None or found[1] != self._token:
            return _refusal(401 if found else 404, "Unauthorized" if found else "Not Found")
        self.calls.append(found[2])
        if found[2] == "getMe":
            return Reply(200, b'{"ok":true,"result":{"id":1,"is_bot":true}}')
        fields = _form(asked) if found[2] == "sendPhoto" else json.loads(asked.body)
        picture = fields.pop("photo", None)
        text = str(fields.get("caption" if found[2] == "sendPhoto" else "text"))
        units = len(text.encode("utf-16-le")) // 2
        if str(fields["chat_id"]) != "123":
            return _refusal(400, "Bad Request: chat not found")
        if units > (1024 if picture else 4096):
            return _refusal(400, "Bad Request: message caption is too long")
        if picture and not picture.startswith(b"\xff\xd8"):
            return _refusal(400, "Bad Request: IMAGE_PROCESS_FAILED")
        if picture and len(picture) > self._photo_bytes:
            return _refusal(413, "Request Entity Too Large")
        self.messages.append({"text": text, "picture": picture, **fields})
        return Reply(200, json.dumps({"ok": True, "result": {"message_id": len(self.messages)}}).encode())


def record(kind: RecordKind, message: Event | Notice | Clip | Loss, *, position: int = 1, at: int = AT) -> Record:
    """A record of a daemon `hall`."""
    source = getattr(message, "source", "")
    return Record(7, position, kind, "hall", source, message.id, at, msgspec.json.encode(message))


def event_record(position: int = 1, *, at: int = AT, **more: Any) -> Record:
    """A person over the line `porch` of the camera `door`."""
    fields: dict[str, Any] = {
        "id": f"run-{position}", "number": position, "instance": "run", "source": "door", "session": "s", "index": 0,
        "kind": "line", "phase": "crossed", "seq": 5, "pts": 1, "at": at, "confirmed_seq": 6, "confirmed_at": at,
        "rule": "porch", "direction": "forward", "track": 3, "label": "person",
        "snapshot": f"/api/v1/events/run-{position}/snapshot.jpg",
    }  # fmt: skip
    return record("event", Event(**{**fields, **more}), position=position, at=at)


class NoMemory:
    def read(self) -> Mapping[str, str]:
        return {}

    def write(self, key: str, value: str | None) -> None: ...


def context(clock: Clock | None = None, daemons: Sequence[str] = ("hall",)) -> TargetContext:
    return TargetContext("bridge-1", tuple(daemons), NoMemory(), clock or SystemClock())


def _decoded(text: str) -> str:
    return str(make_header(decode_header(text))).strip()


def _form(asked: Asked) -> dict[str, Any]:
    head = f"Content-Type: {asked.headers['content-type']}\r\n\r\n".encode()
    parts: Any = message_from_bytes(head + asked.body).get_payload()
    fields: dict[str, Any] = {}
    for part in parts:
        name, content = part.get_param("name", header="content-disposition"), part.get_payload(decode=True)
        fields[name] = content if part.get_filename() else content.decode()
    return fields


def _failure(status: int, code: int, error: str) -> Reply:
    return Reply(status, json.dumps({"code": code, "http": status, "error": error}).encode())


def _refusal(status: int, description: str) -> Reply:
    return Reply(status, json.dumps({"ok": False, "error_code": status, "description": description}).encode())
