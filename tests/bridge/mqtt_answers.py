"""A small broker of MQTT 5 that answers as a test wants it: with refusals, late, or not at all."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable
from typing import NamedTuple

from tests.support.daemon import PATIENCE_S

_IDLE_S = 0.02
_CONNECT, _PUBLISH, _SUBSCRIBE, _PING = 1, 3, 8, 12


class _Packet(NamedTuple):
    kind: int
    flags: int
    body: bytes


class AnsweringBroker:
    """It retains nothing, and passes on only who has a prefix.

    Args:
        code: of the answer to a message, from its topic and its body; None to keep it back until `release`.

    Attributes:
        bodies: of all messages below `lookout/events/`, in their order.
    """

    def __init__(self, code: Callable[[str, bytes], int | None]) -> None:
        self._code = code
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE_S)
        self.port = self._listener.getsockname()[1]
        self.bodies: list[bytes] = []
        self._kept: list[bytes] = []
        self._is_released, self._is_over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> AnsweringBroker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._listener.close()
        self._thread.join()

    def release(self) -> None:
        """Answer what was kept back, and all that comes, with success."""
        self._is_released.set()

    def _run(self) -> None:
        peer, _ = self._listener.accept()
        with peer:
            peer.settimeout(PATIENCE_S)
            while not self._is_over.is_set():
                if self._is_released.is_set():
                    self._send_kept(peer)
                if not select.select([peer], [], [], _IDLE_S)[0]:
                    continue
                packet = _read(peer)
                if packet is None:
                    return
                self._answer(peer, packet)

    def _answer(self, peer: socket.socket, packet: _Packet) -> None:
        if packet.kind == _CONNECT:
            peer.sendall(bytes([0x20, 3, 0, 0, 0]))
        elif packet.kind == _SUBSCRIBE:
            peer.sendall(bytes([0x90, 4]) + packet.body[:2] + bytes(2))
        elif packet.kind == _PING:
            peer.sendall(bytes([0xD0, 0]))
        elif packet.kind == _PUBLISH:
            self._take(peer, packet)

    def _take(self, peer: socket.socket, packet: _Packet) -> None:
        end = 2 + int.from_bytes(packet.body[:2], "big")
        topic, mid, rest = packet.body[2:end].decode(), packet.body[end : end + 2], packet.body[end + 2 :]
        body = rest[1 + rest[0] :]  # properties of less than 128 bytes
        if topic.startswith("lookout/events/"):
            self.bodies.append(body)
        code = 0 if self._is_released.is_set() else self._code(topic, body)
        if code is None:
            self._kept.append(mid)
        else:
            peer.sendall(bytes([0x40, 4]) + mid + bytes([code, 0]))
        if topic.endswith("/owner"):
            whole = packet.body[:end] + rest
            peer.sendall(bytes([0x30, len(whole)]) + whole)

    def _send_kept(self, peer: socket.socket) -> None:
        while self._kept:
            peer.sendall(bytes([0x40, 4]) + self._kept.pop(0) + bytes(2))


def _read(peer: socket.socket) -> _Packet | None:
    head = _bytes(peer, 1)
    length, shift = 0, 0
    while head:
        part = _bytes(peer, 1)
        if not part:
            break
        length |= (part[0] & 0x7F) << shift
        shift += 7
        if part[0] < 0x80:
            body = _bytes(peer, length)
            return None if len(body) < length else _Packet(head[0] >> 4, head[0] & 15, body)
    return None


def _bytes(peer: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        try:
            part = peer.recv(count - len(found))
        except OSError:
            return b""
        if not part:
            return b""
        found += part
    return found
