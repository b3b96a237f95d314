"""A collector of OpenTelemetry, over real sockets: it keeps what it is sent, and answers as a test says."""

from __future__ import annotations

import gzip
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Respond = Callable[["Request"], None]
Span = dict[str, Any]


class Request(BaseHTTPRequestHandler):
    """One request, read to its end.

    Attributes:
        collector: that got it.
        spans: in its body.
    """

    protocol_version = "HTTP/1.1"
    collector: Collector
    spans: list[Span]

    def do_POST(self) -> None:
        with suppress(OSError):
            body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
            self.spans = spans_in(json.loads(body))
            self.collector.note(self.path, dict(self.headers), body)
            self.collector.respond(self)

    def answer(self, status: int, content: bytes = b"{}", **headers: str) -> None:
        if status < 300:
            self.collector.keep(self.spans)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def hang(self) -> None:
        """Say nothing until the collector ends."""
        self.close_connection = True
        self.collector.ending.wait()

    def log_message(self, *_: object) -> None: ...


def take(request: Request) -> None:
    """As a collector that works."""
    request.answer(200)


class Collector:
    """
    Args:
        respond: to each request; may be replaced.
        certificate: with its key, for TLS.

    Attributes:
        requests: paths, headers and bodies of all that have come.
        ending: set when it is closed.
    """

    def __init__(self, respond: Respond = take, certificate: Path | None = None) -> None:
        self.respond = respond
        self.requests: list[tuple[str, Mapping[str, str], bytes]] = []
        self.ending = threading.Event()
        self._spans: list[Span] = []
        self._lock = threading.Lock()
        handler = type("Handler", (Request,), {"collector": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients go in the middle
        if certificate:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate)
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = int(self._server.server_address[1])
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def note(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        with self._lock:
            self.requests.append((path, headers, body))

    def keep(self, spans: list[Span]) -> None:
        with self._lock:
            self._spans += spans

    def traces(self) -> dict[str, dict[str, Span]]:
        """The spans that it has taken, by trace and name."""
        found: dict[str, dict[str, Span]] = {}
        with self._lock:
            for span in self._spans:
                found.setdefault(span["traceId"], {})[span["name"]] = span
        return found

    def close(self) -> None:
        self.ending.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def spans_in(request: Mapping[str, Any]) -> list[Span]:
    """All spans of a request as OTLP has it in JSON."""
    return [*_spans_in(request)]


def _spans_in(request: Mapping[str, Any]) -> Iterator[Span]:
    for resource in request["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            yield from scope["spans"]


def attributes_of(span: Mapping[str, Any]) -> dict[str, str | int]:
    """By name; integers of 64 bits are texts in JSON."""
    return {
        row["key"]: int(row["value"]["intValue"]) if "intValue" in row["value"] else row["value"]["stringValue"]
        for row in span["attributes"]
    }
