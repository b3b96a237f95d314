"""A WebSocket client that a test holds in its hand: it reads when it is told to, and sends what it is given."""

from __future__ import annotations

import select
import socket
from time import monotonic
from typing import Any

import msgspec
from wsproto import ConnectionType, WSConnection
from wsproto.events import BytesMessage, CloseConnection, Ping, RejectConnection, Request, TextMessage

from tests.support.daemon import PATIENCE_S


class ClosedError(Exception):
    """The server refused, or closed.

    Attributes:
        code: HTTP status, or the WebSocket's code.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


_SAY_S = 0.25  # how often it says what has come


class WebSocketClient:
    """One WebSocket, open once the server has accepted. It says how many messages have come, as a browser's page does.

    Raises:
        ClosedError: from the constructor and from `next`.
    """

    def __init__(self, port: int, path: str, **headers: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._messages: list[str | bytes] = []
        self._rows: list[dict[str, Any]] = []  # of a feed's array, not looked at yet
        self._part: Any = None
        self._got, self._said, self._said_at = 0, 0, monotonic()
        host = headers.pop("host", f"127.0.0.1:{port}")
        headers = {"origin": f"http://{host}", **headers}
        extra = [(name.encode(), value.encode()) for name, value in headers.items() if value]
        self.socket.sendall(self._protocol.send(Request(host=host, target=path, extra_headers=extra)))
        try:
            self._receive()
        except BaseException:
            self.close()
            raise

    def send(self, message: object) -> None:
        text = message if isinstance(message, str) else msgspec.json.encode(message).decode()
        self.socket.sendall(self._protocol.send(TextMessage(data=text)))

    def next(self, timeout_s: float = PATIENCE_S) -> str | bytes:
        """The next message."""
        until = monotonic() + timeout_s
        while not self._messages:
            assert monotonic() < until, f"nothing came within {timeout_s:g} s"
            if select.select([self.socket], [], [], _SAY_S)[0]:
                self._receive()
            self._say()
        return self._messages.pop(0)

    def _say(self) -> None:
        if self._got > self._said and monotonic() - self._said_at > _SAY_S:
            self._said, self._said_at = self._got, monotonic()
            self.send({"got": self._got})

    def until(self, kind: str) -> dict[str, Any]:
        """The next message of this kind, of a feed or of live video; others are left out."""
        while True:
            while self._rows:
                row = self._rows.pop(0)
                if row["kind"] == kind:
                    return row
            text = self.next()
            if isinstance(text, str):
                found = msgspec.json.decode(text)
                self._rows += found if isinstance(found, list) else [found]

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> WebSocketClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _receive(self) -> None:
        data = self.socket.recv(1 << 18)
        self._protocol.receive_data(data or None)
        for event in self._protocol.events():
            if isinstance(event, TextMessage | BytesMessage):
                self._part = event.data if self._part is None else self._part + event.data
                if event.message_finished:
                    self._got += 1
                    self._messages.append(self._part if isinstance(self._part, str) else bytes(self._part))
                    self._part = None
            elif isinstance(event, Ping):
                self.socket.sendall(self._protocol.send(event.response()))
            elif isinstance(event, RejectConnection):
                raise ClosedError(event.status_code)
            elif isinstance(event, CloseConnection):
                raise ClosedError(event.code)
