"""The other side of the page's proxy as a test has it: an HTTP API that tells of recordings, and their server, which
answers as the request says and keeps what it was asked."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import suppress

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from daemon.config.http import HttpConfig
from daemon.http.server import HttpServer
from tests.support.daemon import PATIENCE_S

_DO = re.compile(rb"do=(\w+)")
_LENGTH = re.compile(rb"(?i)\ncontent-length: (\d+)")
_ENDLESS = 1 << 34
ANSWERS = {
    b"": b"200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}",
    b"script": b"200 OK\r\nContent-Length: 4\r\nContent-Type: text/html\r\nSet-Cookie: a=b\r\nLocation: http://x/\r\n"
    b"Access-Control-Allow-Origin: *\r\nETag: \"x\"\r\n\r\n<br>",
    b"redirect": b"302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    b"fail": b"500 Oh\r\nContent-Length: 0\r\n\r\n",
    b"refuse": b"401 No\r\nContent-Length: 0\r\nWWW-Authenticate: Bearer\r\n\r\n",
    b"break": b"200 OK\r\nContent-Length: 9\r\nContent-Type: video/mp4\r\n\r\nhalf",
    b"lines": b"200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/x-ndjson\r\n\r\n3\r\n{}\n\r\n",
    b"nonsense": b"\x00\xff 200 OK\r\n\r\n",
    b"close": b"",
    b"two": b"200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    b"huge": b"200 OK\r\nX-Lookout-Clip: " + b"a" * 200_000,
}  # fmt: skip


def _is_whole(request: bytes) -> bool:
    head, end, body = request.partition(b"\r\n\r\n")
    found = _LENGTH.search(head)
    return bool(end) and len(body) >= (int(found[1]) if found else 0)


class ToldRecordings(threading.Thread):
    """Serves recordings; what a request has as `do` in its query is done.

    Attributes:
        port: of the recordings.
        told: what the HTTP API tells of them.
        asked: all requests.
        sent: bytes of an endless answer; it is stuck if no more could be sent.
        left: requests whose clients have gone before their answer was whole.
    """

    def __init__(self) -> None:
        super().__init__(name="recordings", daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(self._listener.getsockname()[1])
        self.told: dict[str, int] | None = {"port": self.port}
        self.asked: list[bytes] = []
        self.left: list[bytes] = []
        self.sent = 0
        self.is_stuck = threading.Event()
        self._held = threading.Event()
        routes = [Route("/api/v1/daemon", self._daemon), Route("/api/v1/sources", self._sources)]
        self._api = HttpServer(HttpConfig(enabled=True, port=0), "test")
        self._api.mount(Starlette(routes=routes))
        self.url = f"http://127.0.0.1:{self._api.port}"
        self._api.start()
        self.start()

    def forget(self) -> None:
        """Count from 0 again."""
        self.asked.clear()
        self.left.clear()
        self.sent = 0
        self.is_stuck.clear()

    async def _daemon(self, _: Request) -> JSONResponse:
        return JSONResponse({"version": "1", "recordings": self.told})

    async def _sources(self, _: Request) -> JSONResponse:
        return JSONResponse([])

    def was_left(self, query: str) -> bool:
        """Whether the client of a request with this in its query has gone: those of other tests go at any time."""
        return any(query.encode() in request.partition(b"\r\n")[0] for request in self.left)

    def run(self) -> None:
        with suppress(OSError):
            while True:
                end, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(end,), daemon=True).start()

    def _answer(self, end: socket.socket) -> None:
        with end, suppress(OSError):
            end.settimeout(PATIENCE_S)
            head = b""
            while not _is_whole(head):
                part = end.recv(65536)
                if not part:
                    return
                head += part
            self.asked.append(head)
            found = _DO.search(head.partition(b"\r\n")[0])
            what = found[1] if found else b""
            if what in (b"hang", b"endless", b"lines"):
                self._go_on(end, what, head)
            else:
                end.sendall(
                    (b"" if what in (b"nonsense", b"close") else b"HTTP/1.1 ") + ANSWERS.get(what, ANSWERS[b""])
                )

    def _go_on(self, end: socket.socket, what: bytes, request: bytes) -> None:
        """Until the client has left, or all is let go."""
        try:
            if what == b"lines":
                end.sendall(b"HTTP/1.1 " + ANSWERS[what])
            elif what == b"endless":
                self._send_for_ever(end)
            end.settimeout(0.05)
            while not self._held.is_set():
                with suppress(TimeoutError):
                    if not end.recv(1):
                        break
        finally:
            self.left.append(request)

    def _send_for_ever(self, end: socket.socket) -> None:
        end.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\nContent-Length: %d\r\n\r\n" % _ENDLESS)
        end.settimeout(1.0)
        try:
            while True:
                self.sent += end.send(bytes(1 << 16))
        except TimeoutError:
            self.is_stuck.set()

    def close(self) -> None:
        self._held.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._api.stop(5.0)
