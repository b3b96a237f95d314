"""A daemon as the bridge sees it: the wire over ZeroMQ, and the journal over HTTP, from memory.

with EventSource(["door", "yard"]) as source:
    source.emit(100)             # numbered events of both sources in turn, on the wire and in the journal
    with source.losing():        # in the journal alone: a gap in `index`
        source.emit(3)
    source.prune(50)             # the journal has no events up to this number any more
    source.status("door", "down", reason="no route to host")
    source.restart()             # another instance: `index` begins anew, numbers go on

As a program it tells where it is as a line of JSON, and emits so many events at so many a second:
python -m tests.bridge.publisher --events 10000 --rate 400 --sources door yard
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic, sleep, time_ns
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import msgspec
import zmq
from msgspec.structs import replace

import lookout.messages as wire

TOKEN = "journal-token"  # noqa: S105 - of this stand-in
FIRST = 1_800_000_000_001  # number of the first event
_MAX_PAGE = 1000
_MODEL = wire.Model("demo", "0" * 12, "fp32", "cpu")
_FORMAT = wire.VideoFormat("h264", 1280, 720, 25.0, "h264")
_LATENCY = wire.Latency(200_000, 100_000, 400_000, 2_400_000, 60_000, 3_200_000)
_NO_FRAMES = wire.SourceMetrics(
    state="up", captured_fps=25, published_fps=25, captured=0, published=0, dropped=wire.Dropped(), in_flight=0,
    latency=None,
)  # fmt: skip
M = TypeVar("M", bound=wire.Message)


class EventSource:
    """Any thread may use it. Subscribers get the status of every source when they come, as from a daemon.

    Args:
        high_water: messages that wait for a slow subscriber; more are lost on the wire, as a daemon's are.
        http_port: 0 for any.

    Attributes:
        endpoint: of the messages.
        http: URL of the journal, which asks for `TOKEN`.
        events: all, in their order, whatever was lost or pruned since.
        pictures: JPEG by the id of an event, at its `snapshot` path.
        counts: of sources, as the API has them; None while it answers 503.
        requests: paths that were asked for.
    """

    def __init__(self, sources: Sequence[str] = ("door",), *, high_water: int = 10_000, http_port: int = 0) -> None:
        self.sources = tuple(sources)
        self.events: list[wire.Event] = []
        self.pictures: dict[str, bytes] = {}
        self.counts: list[wire.Counts] | None = []
        self.requests: list[str] = []
        self._lock = threading.RLock()
        self._index, self._runs = Counter[bytes](), 0
        self._states: dict[str, wire.Status] = {}
        self._pruned, self._lost, self._next = 0, 0, FIRST
        self._is_losing = self._is_journal_away = False
        self._encode = wire.encoder("json")
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)
        self._socket.setsockopt(zmq.SNDHWM, high_water)
        self._socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        self.endpoint = f"tcp://127.0.0.1:{self._socket.bind_to_random_port('tcp://127.0.0.1')}"
        self._server = _Journal(("127.0.0.1", http_port), self)
        self.http = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.restart()
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._answer_subscriptions, name="subscriptions", daemon=True),
            threading.Thread(target=self._server.serve_forever, args=(0.05,), name="journal-http", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> EventSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def config(self, name: str = "here") -> dict[str, str]:
        """For `bridge.daemons`."""
        return {"name": name, "endpoint": self.endpoint, "http": self.http, "token": TOKEN}

    def emit(self, count: int = 1, *, rate: float = 0.0, **fields: Any) -> list[wire.Event]:
        """So many events, of the sources in turn; zones that a person enters, unless other fields are given.

        Args:
            rate: a second; 0 for as fast as they can be made.
        """
        begin, made = monotonic(), []
        for number in range(count):
            if rate:
                sleep(max(0.0, begin + number / rate - monotonic()))
            with self._lock:
                made.append(self._emit(fields))
        return made

    def _emit(self, fields: dict[str, Any]) -> wire.Event:
        number, self._next, at = self._next, self._next + 1, time_ns()
        seq = number - FIRST
        common: dict[str, Any] = {
            "id": f"{self.instance}-{number}", "number": number, "instance": self.instance, "index": 0,
            "source": self.sources[seq % len(self.sources)], "session": "5e551011", "seq": seq, "pts": seq * 40_000_000,
            "at": at, "confirmed_seq": seq, "confirmed_at": at, "kind": "zone", "phase": "entered", "rule": "porch",
            "track": 1 + seq, "label": "person", "box": (10.0, 20.0, 40.5, 90.0),
        }  # fmt: skip
        event = wire.Event(**{**common, **fields})
        self.events.append(event)
        self.send(event)
        return event

    def send(self, message: M) -> M:
        """Any message of the wire, with this run's `instance` and the next `index` of its topic."""
        with self._lock:
            name = wire.topic(wire.kind_of(message), getattr(message, "source", getattr(message, "store", "")))
            message = replace(message, instance=self.instance, index=self._index[name])
            self._index[name] += 1
            if isinstance(message, wire.Status):
                self._states[message.source] = message
            if not self._is_losing:
                self._socket.send_multipart([name, self._encode(message)])
            return message

    def status(self, source: str, state: wire.State, **fields: Any) -> wire.Status:
        common: dict[str, Any] = {
            "instance": "", "source": source, "session": "5e551011", "index": 0, "at": time_ns(), "state": state,
            "format": _FORMAT if state == "up" else None,
        }  # fmt: skip
        return self.send(wire.Status(**{**common, **fields}))

    def detections(self, source: str, boxes: Sequence[wire.Detection] = (), **fields: Any) -> wire.Detections:
        common: dict[str, Any] = {
            "instance": "", "source": source, "session": "5e551011", "seq": 0, "index": 0, "pts": 0,
            "captured_at": time_ns(), "clock": wire.FrameClock("arrival"), "image": wire.ImageSize(1280, 720),
            "model": _MODEL, "detections": list(boxes), "latency": _LATENCY, "dropped": wire.Dropped(),
        }  # fmt: skip
        return self.send(wire.Detections(**{**common, **fields}))

    def metrics(self) -> wire.Metrics:
        """The figures of a daemon whose sources are all up."""
        process = wire.ProcessMetrics(1.0, 1 << 20, 1, 1)
        sources = {id: replace(_NO_FRAMES, state=self._states[id].state) for id in self.sources}
        message = wire.Metrics(
            instance="", index=0, at=time_ns(), interval_s=1.0, uptime_s=1.0, fps=25.0, latency=None, sources=sources,
            process=process, gpus=None, gpus_reason="none", publisher=wire.PublisherMetrics(0, 1, 0),
        )  # fmt: skip
        return self.send(message)

    @contextmanager
    def losing(self) -> Iterator[None]:
        """What is sent within does not arrive; events are in the journal."""
        with self._lock:
            self._is_losing = True
        try:
            yield
        finally:
            with self._lock:
                self._is_losing = False

    @contextmanager
    def without_journal(self) -> Iterator[None]:
        """The journal answers 503."""
        self._is_journal_away = True
        try:
            yield
        finally:
            self._is_journal_away = False

    def prune(self, number: int) -> None:
        """The journal forgets events up to this number."""
        self._pruned = number

    def lose_for_good(self, count: int) -> None:
        """So many events that neither the wire nor the journal has, as of a journal whose disk was full."""
        with self._lock, self.losing():
            self.emit(count)
            del self.events[-count:]
            self._lost += count

    def restart(self) -> None:
        """Another run of the daemon: a new instance, and every `index` from 0; numbers go on."""
        with self._lock:
            self._runs += 1
            self.instance = f"{self._runs:08x}"
            self._index.clear()
            self._states.clear()
            for source in self.sources:
                self.status(source, "up")

    def close(self) -> None:
        self._ending.set()
        self._server.shutdown()
        for thread in self._threads:
            thread.join(10)
        self._server.server_close()
        self._context.destroy(linger=0)

    def page(self, since: int | None, limit: int, before: int | None = None) -> dict[str, Any] | None:
        """An answer of the journal; None while it is away.

        Args:
            before: events with a smaller number alone.
        """
        if self._is_journal_away:
            return None
        with self._lock:
            last = self._next - 1
            rows = [row for row in self.events[self._at(max(since or 0, self._pruned)) :] if row.number > self._pruned]
            rows = [row for row in rows if before is None or row.number < before]
            lost = self._lost
        more = since is not None and len(rows) > limit
        rows = rows[:limit] if since is not None else rows[-limit:]
        end = rows[-1].number if rows else since or 0
        return {"events": rows, "next": end if more else max(end, last), "more": more, "lost": lost}

    def _at(self, number: int) -> int:
        """Where events above a number begin."""
        low, high = 0, len(self.events)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.events[middle].number <= number else (low, middle)
        return low

    def _answer_subscriptions(self) -> None:
        beat = monotonic()
        while not self._ending.wait(0.02):
            with self._lock:
                while self._socket.poll(0):
                    request = self._socket.recv()
                    for state in list(self._states.values()):
                        if request[:1] == b"\1" and wire.topic("status", state.source).startswith(request[1:]):
                            self.send(state)
                if monotonic() - beat >= 1.0:
                    beat = monotonic()
                    self.metrics()


class _Journal(ThreadingHTTPServer):
    """The HTTP API of a daemon, as far as a bridge asks it."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], source: EventSource) -> None:
        super().__init__(address, _Request)
        self.source = source


class _Request(BaseHTTPRequestHandler):
    timeout = 10
    server: _Journal

    def do_GET(self) -> None:
        source, url = self.server.source, urlsplit(self.path)
        source.requests.append(self.path)
        query = dict(parse_qsl(url.query))
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            self._send(401, b'{"error": "a token is needed"}')
        elif url.path == "/api/v1/events":
            since = int(query["since"]) if "since" in query else None
            before = int(query["before"]) if "before" in query else None
            page = source.page(since, min(_MAX_PAGE, int(query.get("limit", 100))), before)
            body = msgspec.json.encode({"error": "the disk is away"} if page is None else page)
            self._send(503 if page is None else 200, body)
        elif url.path == "/api/v1/counts":
            counts = source.counts
            found_counts = {"error": "the disk is away"} if counts is None else {"counts": counts}
            self._send(503 if counts is None else 200, msgspec.json.encode(found_counts))
        elif url.path.endswith("/snapshot.jpg") and (found := source.pictures.get(url.path.split("/")[-2])):
            self._send(200, found, "image/jpeg")
        else:
            self._send(404, b'{"error": "there is nothing"}')

    def _send(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Not to standard error."""


def main() -> None:
    """Emit events until all are out; then wait for the end of standard input."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--sources", nargs="+", default=["door"])
    parser.add_argument("--http-port", type=int, default=0)
    arguments = parser.parse_args()
    with EventSource(arguments.sources, http_port=arguments.http_port) as source:
        sys.stdout.write(json.dumps(source.config()) + "\n")
        sys.stdout.flush()
        source.emit(arguments.events, rate=arguments.rate)
        sys.stdin.read()


if __name__ == "__main__":
    main()
