"""Hostile peers of the publisher's socket."""

from __future__ import annotations

import os
import socket

from tests.support.daemon import PATIENCE_S

COUNT = int(os.environ.get("LOOKOUT_HOSTILE", "1000"))
GREETING = b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00"
_READY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB"


def shaken_hands(endpoint: str) -> socket.socket:
    """A connection that has declared itself a subscriber, by ZMTP without keys.

    Raises:
        OSError: it is cut off before.
    """
    peer = socket.create_connection(("127.0.0.1", int(endpoint.rpartition(":")[2])), timeout=PATIENCE_S)
    try:
        peer.sendall(GREETING + b"NULL".ljust(20, b"\x00") + bytes(32))
        greeting = b""
        while len(greeting) < 64:
            part = peer.recv(64 - len(greeting))
            if not part:
                raise ConnectionResetError
            greeting += part
        peer.sendall(bytes([4, len(_READY)]) + _READY)
    except OSError:
        peer.close()
        raise
    return peer


def is_turned_away(endpoint: str) -> bool:
    """Whether another subscriber is cut off, while it shakes hands or later."""
    try:
        peer = shaken_hands(endpoint)
    except OSError:
        return True
    return is_cut_off(peer)


def subscription(prefix: bytes, *, ends: bool = False) -> bytes:
    """A frame in wire format."""
    body = bytes([not ends]) + prefix
    return bytes([0, len(body)]) + body


def is_cut_off(peer: socket.socket) -> bool:
    """Wait until the peer closes the connection, then close this side."""
    with peer:
        try:
            while peer.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
    return True
