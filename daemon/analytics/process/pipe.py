"""A pipe of messages of any length. The daemon's lanes write into it without losing the GIL, while it has room."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import msgspec

from daemon.analytics.process.protocol import RulesMessage
from daemon.system.libc import last_error, libc

_ROOM_BYTES = 1 << 20  # of the pipe; the largest that needs no privilege
_READ_BYTES = 1 << 18
_LENGTH = struct.Struct("<I")
_FULL = errno.EAGAIN, errno.EINTR


class PipeWriter:
    """The end that sends. Any thread may use it.

    Args:
        fd: it owns it.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        os.set_blocking(fd, False)
        with suppress(OSError):  # the user's pipes have much room already
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _ROOM_BYTES)
        self._encode = msgspec.msgpack.Encoder().encode
        self._room = select.poll()
        self._room.register(fd, select.POLLOUT)
        self._lock = threading.Lock()

    def send(self, messages: Sequence[RulesMessage], timeout_s: float | None = None) -> None:
        """Send messages together; waits while the pipe is full.

        Raises:
            OSError: the other end is closed.
            TimeoutError: the pipe was full for longer; nothing can be sent any more.
        """
        parts: list[bytes] = []
        for message in messages:
            data = self._encode(message)
            parts += _LENGTH.pack(len(data)), data
        rest = b"".join(parts)
        until = None if timeout_s is None else monotonic() + timeout_s
        if not self._lock.acquire(timeout=-1 if timeout_s is None else timeout_s):
            raise TimeoutError
        try:
            while (sent := self._write(rest)) < len(rest):
                rest = rest[sent:]
                if not self._room.poll(None if until is None else max(0.0, until - monotonic()) * 1000):
                    raise TimeoutError
        finally:
            self._lock.release()

    def _write(self, data: bytes) -> int:
        """Write what there is room for; returns the number of bytes."""
        if self._fd < 0:
            raise BrokenPipeError
        sent: int = libc().write(self._fd, data, len(data))
        if sent >= 0:
            return sent
        error = last_error()
        if error.errno in _FULL:
            return 0
        raise error

    def close(self) -> None:
        """The other end reads what was sent, and then the end. A thread that waits in `send` must have its error."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


class PipeReader:
    """The end that receives, in one thread.

    Args:
        fd: it owns it.
        kind: union of the messages.
    """

    def __init__(self, fd: int, kind: object) -> None:
        self.fd = fd
        self._decode = msgspec.msgpack.Decoder[Any](kind).decode
        self._held = bytearray()

    def receive(self) -> list[Any] | None:
        """Wait for data, and take the messages that are complete; None at the end.

        Raises:
            msgspec.ValidationError: a message is none.
        """
        data = os.read(self.fd, _READ_BYTES)
        if not data:
            return None
        self._held += data
        found: list[Any] = []
        begin = 0
        held = memoryview(self._held)
        while len(held) - begin >= _LENGTH.size:
            end = begin + _LENGTH.size + _LENGTH.unpack_from(held, begin)[0]
            if end > len(held):
                break
            found.append(self._decode(held[begin + _LENGTH.size : end]))
            begin = end
        held.release()
        del self._held[:begin]
        return found

    def close(self) -> None:
        os.close(self.fd)
