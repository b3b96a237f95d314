"""The socket that carries messages between the daemon and a capture process."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from array import array
from collections.abc import Sequence
from ctypes import c_char

import msgspec

from daemon.capture.processes.protocol import ProcessMessage
from daemon.system.libc import last_error, libc

_PACKET_BYTES = 1 << 18
_AT_ONCE = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
_NOTHING = errno.EAGAIN, errno.ECONNRESET  # after a reset come the packets sent before, then the end
_DESCRIPTOR_FOLLOWS = b"\xc0"  # a packet of its own: msgpack's nil, which is not a list of messages


class NoDescriptorError(Exception):
    """This process has no free file descriptor."""


class Channel:
    """One end of a socket of packets; each packet is a list of messages. One thread receives; any thread may send,
    because the socket takes a packet as a whole.

    Args:
        end: from `pair`; calls block if it does.
        kind: union of the incoming messages.
    """

    def __init__(self, end: socket.socket, kind: object) -> None:
        self.socket = end
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(list[kind]).decode  # type: ignore[valid-type]
        self._buffer = bytearray(_PACKET_BYTES)
        self._view = memoryview(self._buffer)
        self._address = ctypes.addressof(c_char.from_buffer(self._buffer))
        self._waits = end.getblocking()
        self._discarded = bytearray(1)
        self._descriptors_due = 0
        self._has_announced = False  # a descriptor whose packet found the socket full

    def send(self, messages: Sequence[ProcessMessage], fd: int | None = None) -> bool:
        """Send one packet, optionally with a file descriptor; False if a non-blocking socket is full.

        A packet with a descriptor that finds it full must be the next with one that is sent.

        Raises:
            OSError: the other end is closed.
        """
        data = self._encode(messages)
        try:
            if fd is None:
                self._send_packet(data)
            else:
                if not self._has_announced:
                    self.socket.send(_DESCRIPTOR_FOLLOWS)
                self._has_announced = not self._waits
                socket.send_fds(self.socket, [data], [fd])
                self._has_announced = False
        except BlockingIOError:
            return False
        return True

    def receive(self) -> tuple[list[ProcessMessage], int | None] | None:
        """One packet and its file descriptor; no messages if nothing has come; None if the other end is closed.

        Raises:
            NoDescriptorError: for the packet's descriptor. The next call receives the same packet.
        """
        if self._descriptors_due:
            return self._receive_with_descriptor()
        size = self._receive_packet()
        if size is None:
            return [], None
        if size == 0:
            return None
        if self._view[:size] == _DESCRIPTOR_FOLLOWS:
            self._descriptors_due += 1
            return self._receive_with_descriptor()
        return self._decode(self._view[:size]), None

    def receive_without_descriptor(self) -> list[ProcessMessage]:
        """The messages of the packet for whose descriptor there is no room, which is lost."""
        self._descriptors_due -= 1
        return self._decode(self._view[: self.socket.recv_into(self._buffer)])

    def _send_packet(self, data: bytes) -> None:
        if self._waits:
            self.socket.send(data)
        elif libc().send(self.socket.fileno(), data, len(data), _AT_ONCE) < 0:
            raise last_error()

    def _receive_packet(self) -> int | None:
        """Receive into the buffer; returns the size, or None if nothing has come."""
        if self._waits:
            try:
                return self.socket.recv_into(self._buffer)
            except (BlockingIOError, ConnectionResetError):
                return None
        size: int = libc().recv(self.socket.fileno(), self._address, _PACKET_BYTES, _AT_ONCE)
        if size >= 0:
            return size
        if ctypes.get_errno() in _NOTHING:
            return None
        raise last_error()

    def _receive_with_descriptor(self) -> tuple[list[ProcessMessage], int | None] | None:
        """Receive while a descriptor is announced; packets of other threads may come before it.

        The packet is peeked, and removed once its descriptor has been received. The second system call, and the GIL it
        costs, would be too much for every packet.
        """
        fds = array("i")
        room = socket.CMSG_SPACE(fds.itemsize)
        try:
            size, extra, flags, _ = self.socket.recvmsg_into([self._buffer], room, socket.MSG_PEEK)
        except (BlockingIOError, ConnectionResetError):
            return [], None
        if size == 0:
            return None
        if flags & socket.MSG_CTRUNC:
            raise NoDescriptorError
        for _, _, data in extra:
            fds.frombytes(data[: fds.itemsize])
        try:
            self._discard_packet()
            if self._view[:size] == _DESCRIPTOR_FOLLOWS:
                self._descriptors_due += 1
                return self._receive_with_descriptor()
            self._descriptors_due -= len(fds)
            return self._decode(self._view[:size]), fds[0] if fds else None
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise

    def _discard_packet(self) -> None:
        """Remove the peeked packet, whatever its length."""
        try:
            self.socket.recv_into(self._discarded)
        except ConnectionResetError:  # the other end has closed; reported once
            self.socket.recv_into(self._discarded)

    def close(self) -> None:
        self.socket.close()


def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends: the daemon's, non-blocking, and the capture process's, blocking."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _PACKET_BYTES)
    ends[0].setblocking(False)
    return ends
