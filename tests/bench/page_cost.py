"""`python -m tests.bench dashboard`: what watching costs the daemon, and what it costs the page's own process.

A daemon plays a recording from several sources, with a detector that does nothing, beside the page's process. One
subscriber receives all messages throughout. Viewers of live video, with their boxes, come and go in turns. The CPU time
of both processes is read from the kernel.
"""

from __future__ import annotations

import base64
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic

import msgspec
import psutil
import yaml

from daemon.clock import SystemClock
from daemon.errors import LookoutError
from daemon.system.stop_token import StopToken

_START_S = 60.0
_SETTLE_S = 2.0
_ACKNOWLEDGE_S = 0.25  # at the earliest, if much has come; otherwise twice that
_MUCH = 32 << 10  # bytes
_HEADER = 10  # the longest of a frame that a server sends
_NAME = "here"
_Way = tuple[int, int, bool]  # watched sources, viewers of each, with boxes


@dataclass(frozen=True)
class PageCostOptions:
    """Options of the measurement; see `python -m tests.bench dashboard --help`."""

    clip: Path
    sources: int = 16
    seconds: float = 6.0
    rounds: int = 3
    viewers: int = 50


@dataclass(frozen=True)
class PageCost:
    """One way to watch, medians over the rounds.

    Attributes:
        watched: sources whose live video is watched.
        viewers: of each.
        boxes: they also get the detections of these sources.
        daemon, page: percent of a core.
        more: the daemon's, compared with the same round without a viewer.
        page_rss: bytes.
        received_mib_s: received by all viewers.
    """

    watched: int
    viewers: int
    boxes: bool
    daemon: float
    more: float
    page: float
    page_rss: int
    received_mib_s: float


@dataclass
class _Sample:
    daemon: float
    page: float
    page_rss: int
    received: float


def page_costs(options: PageCostOptions) -> list[PageCost]:
    """Run and measure.

    Raises:
        LookoutError: the daemon or the page does not start.
    """
    ways: list[_Way] = [
        (0, 0, False),
        (1, 1, True),
        (options.sources, 1, False),
        (options.sources, 1, True),
        (1, options.viewers, True),
    ]
    samples: dict[_Way, list[_Sample]] = {way: [] for way in ways}
    with ExitStack() as stack:
        port, daemon, page = stack.enter_context(_running(options))
        for _ in range(options.rounds):
            for way in ways:
                samples[way].append(_measured(way, options.seconds, port, daemon, page))
    return [_summary(way, rows, samples[ways[0]]) for way, rows in samples.items()]


def _summary(way: _Way, rows: Sequence[_Sample], idle: Sequence[_Sample]) -> PageCost:
    return PageCost(
        watched=way[0],
        viewers=way[1],
        boxes=way[2],
        daemon=round(median(row.daemon for row in rows), 1),
        more=round(median(row.daemon - before.daemon for row, before in zip(rows, idle)), 1),
        page=round(median(row.page for row in rows), 1),
        page_rss=max(row.page_rss for row in rows),
        received_mib_s=round(median(row.received for row in rows) / (1 << 20), 2),
    )


@contextmanager
def _running(options: PageCostOptions) -> Iterator[tuple[int, psutil.Process, psutil.Process]]:
    """The page's port, and both processes."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        endpoint, http, port = (_free_port() for _ in range(3))
        token = secrets.token_hex(16)
        clip = {"type": "av", "url": str(options.clip.resolve()), "loop": True, "decode": "cpu"}
        config = {
            "model": {"path": "none", "backend": "fake"},
            "sources": [{"id": f"cam-{number}", **clip} for number in range(options.sources)],
            "capture_processes": 0,
            "publisher": {"endpoint": f"tcp://127.0.0.1:{endpoint}"},
            "http": {"enabled": True, "port": http, "token": token},
            "events": {"journal": "off"},
            "dashboard": {"port": port},
            "log": {"level": "error"},
        }
        path = Path(folder) / "config.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        found = []
        for command in ("run", "dashboard"):
            process = subprocess.Popen([sys.executable, "-m", "daemon", command, "-c", str(path)])
            stack.callback(_end, process)
            found.append(psutil.Process(process.pid))
        _await(port, options.sources)
        listener = [sys.executable, "-m", "daemon", "watch", f"tcp://127.0.0.1:{endpoint}", "--json"]
        stack.callback(_end, subprocess.Popen(listener, stdout=subprocess.DEVNULL))
        yield port, found[0], found[1]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


def _await(port: int, sources: int) -> None:
    """Wait until all sources are up."""
    import urllib.request

    until = monotonic() + _START_S
    while monotonic() < until:
        with suppress(OSError, msgspec.MsgspecError):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/sources", timeout=5) as answer:
                rows = msgspec.json.decode(answer.read())
            if sum(row["state"] == "up" for row in rows) == sources:
                return
        _pause(0.2)
    raise LookoutError(f"the daemon or the page was not ready within {_START_S:g} s")


def _measured(way: _Way, seconds: float, port: int, daemon: psutil.Process, page: psutil.Process) -> _Sample:
    watched, viewers, boxes = way
    with ExitStack() as stack:
        readers = [
            stack.enter_context(_Reader(port, f"/api/live/{_NAME}/cam-{number}", None))
            for number in range(watched)
            for _ in range(viewers)
        ]
        wanted = {"sources": [[_NAME, f"cam-{number}"] for number in range(watched) if boxes]}
        feeds = [stack.enter_context(_Reader(port, "/api/feed", wanted)) for _ in range(viewers)]
        _pause(_SETTLE_S)
        before, received, begun = (_cpu(daemon), _cpu(page)), sum(row.received for row in readers), monotonic()
        _pause(seconds)
        took = monotonic() - begun
        used = [(_cpu(process) - earlier) / took * 100 for process, earlier in zip((daemon, page), before)]
        got = (sum(row.received for row in readers) - received) / took
        if any(not row.is_alive for row in (*readers, *feeds)):
            raise LookoutError("a viewer was cut off: the machine is too slow for this load")
        return _Sample(used[0], used[1], page.memory_info().rss, got)


def _pause(seconds: float) -> None:
    SystemClock().wait(StopToken(), seconds)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


class _Reader:
    """A viewer: a WebSocket that is read, and whose messages are not looked at."""

    def __init__(self, port: int, path: str, first: object) -> None:
        self.received = 0
        self._socket = socket.create_connection(("127.0.0.1", port), 10)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            f"Origin: http://127.0.0.1:{port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
        ]
        self._socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        answer = self._socket.recv(4096)
        if not answer.startswith(b"HTTP/1.1 101"):
            raise LookoutError("the page refuses a viewer")
        self._first = answer.partition(b"\r\n\r\n")[2]  # messages that came with it
        if first is not None:
            self._socket.sendall(_masked(msgspec.json.encode(first)))
        self._thread = threading.Thread(target=self._run, name="viewer", daemon=True)
        self._thread.start()

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._socket.close()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        """Say how many messages have come, as a tab does: nobody is sent more than comes."""
        buffer, reported_at = bytearray(), monotonic()
        received, left = _messages(buffer, self._first, 0)  # messages, and bytes of the last one that are to come
        acknowledged = since = 0
        self._socket.settimeout(_ACKNOWLEDGE_S)
        with suppress(OSError):
            while True:
                with suppress(TimeoutError):
                    part = self._socket.recv(1 << 18)
                    if not part:
                        return
                    self.received += len(part)
                    since += len(part)
                    messages, left = _messages(buffer, part, left)
                    received += messages
                wait_s = _ACKNOWLEDGE_S if since > _MUCH else 2 * _ACKNOWLEDGE_S
                if received > acknowledged and monotonic() - reported_at > wait_s:
                    acknowledged, since, reported_at = received, 0, monotonic()
                    self._socket.sendall(_masked(msgspec.json.encode({"got": received})))


def _messages(buffer: bytearray, part: bytes, left: int) -> tuple[int, int]:
    """How many messages begin in what has come (RFC 6455), and how many bytes of the last one are still to come.

    Args:
        buffer: holds what has come of a header.
    """
    buffer += part[left:]
    left, count = max(0, left - len(part)), 0
    while len(buffer) >= _HEADER:
        size, start = buffer[1], 2
        if size >= 126:
            start += 2 if size == 126 else 8
            size = int.from_bytes(buffer[2:start], "big")
        count += buffer[0] & 15 < 8  # not a ping
        left = max(0, start + size - len(buffer))
        del buffer[: start + size]
    return count, left


def _masked(payload: bytes) -> bytes:
    """A text frame of a client (RFC 6455); a mask of zeros leaves the payload as it is."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else bytes([0x80 | 126]) + size.to_bytes(2, "big")
    return b"\x81" + length + bytes(4) + payload


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
