"""A TCP proxy that simulates network faults."""

from __future__ import annotations

import random
import selectors
import socket
import threading
from contextlib import suppress
from time import monotonic


class Proxy(threading.Thread):
    """Forwards connections to a port; its attributes may be set while it runs.

    Attributes:
        port, target: the ports that it listens on, and forwards to.
        corrupt: share of the server's chunks that are corrupted.
        delay_s: delay of the server's chunks.
        silent: forward nothing, and keep connections open.
        asked: what clients have sent since it was set; None to keep nothing.
    """

    def __init__(self, target: int) -> None:
        super().__init__(name="proxy", daemon=True)
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.corrupt, self.delay_s, self.silent = 0.0, 0.0, False
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
            now = monotonic()
            due = [row for row in self._waiting if row[0] <= now]
            self._waiting = [row for row in self._waiting if row[0] > now]
            for _, end, data in due:
                with suppress(OSError):
                    end.sendall(data)

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
        other, from_server = self._pairs[end]
        try:
            data = end.recv(65536)
        except OSError:
            data = b""
        if not data:
            for one in (end, other):
                if one in self._pairs:
                    self._selector.unregister(one)
                    del self._pairs[one]
                one.close()
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
        self._waiting.append((monotonic() + (self.delay_s if from_server else 0.0), other, data))
