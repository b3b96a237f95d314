"""A TCP proxy that simulates network faults."""

from __future__ import annotations

import random
import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

_PIECE = 4096


class Proxy(threading.Thread):
    """Forwards connections to a port; its attributes may be set while it runs.

    Attributes:
        port, target: the ports that it listens on, and forwards to.
        corrupt: share of the server's chunks that are corrupted.
        delay_s: delay of the server's chunks.
        rate: bytes of the server's a second, of all connections; 0 for as many as come. The rest waits, however much.
        silent: forward nothing, and keep connections open. What comes meanwhile is lost.
        held: forward what comes when this is unset again, in order, as TCP does after a network without packets.
        asked: what clients have sent since it was set; None to keep nothing.
    """

    def __init__(self, target: int) -> None:
        super().__init__(name="proxy", daemon=True)
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.corrupt, self.delay_s, self.silent = 0.0, 0.0, False
        self.rate = 0.0
        self._free_at = 0.0  # when all that waits has been sent at that rate
        self.held = False
        self._kept: list[tuple[socket.socket, bytes]] = []  # with the end that it came from; empty: the end is closed
        self.asked: bytearray | None = None
        # The other end of each connection, and whether this end is the server's.
        self._pairs: dict[socket.socket, tuple[socket.socket, bool]] = {}
        self._waiting: list[tuple[float, socket.socket, bytes]] = []
        self._chance = random.Random(5)
        self._ending = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self.start()

    def cut(self) -> None:
        """Cut every connection, as a restarted router does."""
        for end in list(self._pairs):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def ask_again(self, requests: bytes) -> None:
        """Send requests of an HTTP client, kept in `asked`, a second time, and wait until all are answered."""
        with socket.create_connection(("127.0.0.1", self.target), timeout=60) as connection:
            connection.sendall(requests)
            answers = b""
            while answers.count(b"HTTP/1.1 200") < requests.count(b"POST /"):
                answers += connection.recv(65536)

    def close(self) -> None:
        self._ending.set()
        self.join(5)
        for end in [*self._pairs, self._listener]:
            end.close()
        self._selector.close()

    def run(self) -> None:
        while not self._ending.is_set():
            for key, _ in self._selector.select(0.02):
                end = key.fileobj
                if end is self._listener:
                    self._accept()
                elif isinstance(end, socket.socket):
                    self._forward(end)
            self._pass_on()
            self._send(lambda due, _: due <= monotonic())

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self.target), timeout=2)
        except OSError:
            client.close()
            return
        for end, other, from_server in ((client, server, False), (server, client, True)):
            end.settimeout(2)
            self._pairs[end] = (other, from_server)
            self._selector.register(end, selectors.EVENT_READ)

    def _forward(self, end: socket.socket) -> None:
        if end not in self._pairs:  # closed with its other end in this very turn
            return
        try:
            data = end.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(end)
        self._kept.append((end, data))
        self._pass_on()

    def _pass_on(self) -> None:
        if self.held:
            return
        kept, self._kept = self._kept, []
        for end, data in kept:
            if end in self._pairs:
                self._pass(end, data)

    def _pass(self, end: socket.socket, data: bytes) -> None:
        other, from_server = self._pairs[end]
        if not data:
            self._close(end, other)
            return
        if self.silent:
            return
        if not from_server and self.asked is not None:
            self.asked += data
        if from_server and self._chance.random() < self.corrupt:
            broken = bytearray(data)
            for _ in range(1 + len(broken) // 200):
                broken[self._chance.randrange(len(broken))] ^= 1 << self._chance.randrange(8)
            data = bytes(broken)
        if not self.rate and self._free_at:  # it is fast again: what waits goes at once, and first
            self._free_at = 0.0
            self._send(lambda _, __: True)
        for start in range(0, len(data), _PIECE):
            piece = data[start : start + _PIECE]
            due = monotonic()
            if from_server and self.rate:
                due = self._free_at = max(due, self._free_at) + len(piece) / self.rate
            self._waiting.append((due + self.delay_s if from_server else 0.0, other, piece))

    def _send(self, is_due: Callable[[float, socket.socket], bool]) -> None:
        waiting, self._waiting = self._waiting, []
        for row in waiting:
            at, end, data = row
            if not is_due(at, end):
                self._waiting.append(row)
                continue
            with suppress(OSError):
                end.sendall(data)

    def _close(self, *ends: socket.socket) -> None:
        self._send(lambda _, end: end in ends)
        for end in ends:
            self._pairs.pop(end, None)
            with suppress(KeyError):  # its own end has come
                self._selector.unregister(end)
            end.close()
