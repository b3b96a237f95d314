"""What the daemon's process and a capture process tell each other, and the socket between them."""

from __future__ import annotations

import os
import socket
from array import array
from collections.abc import Sequence

import msgspec

from daemon.capture.sinks import Quota
from daemon.messages import State, VideoFormat
from daemon.pipeline.frames import FrameInfo

MOST = 64  # messages in one packet
_PACKET_BYTES = 1 << 18
_DESCRIPTOR_FOLLOWS = b"\xc0"  # a packet of its own; to msgpack it is nil, which no list of messages is


class ProcessMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message to or from a capture process."""


# --- from a capture process ----------------------------------------------------------------------------------------
# `capture` is the number that the daemon gave a source when it was added: an id may be another's by the time a message
# of a source that was removed arrives.


class DeviceFrame(ProcessMessage, frozen=True, tag=1):
    """A frame on the GPU. Its place is borrowed until it is given back.

    Attributes:
        block, offset: where luma is.
        chroma: bytes from luma to chroma.
        turns: as `detectors.port.DeviceImage`.
    """

    capture: int
    info: FrameInfo
    block: int
    offset: int
    chroma: int
    pitch: int
    bt709: bool
    full_range: bool
    turns: int


class HostFrame(ProcessMessage, frozen=True, tag=2):
    """A frame in host memory, BGR, as `detectors.port.HostImage`. Its place is borrowed likewise."""

    capture: int
    info: FrameInfo
    block: int
    offset: int


class PictureSkipped(ProcessMessage, frozen=True, tag=3):
    """A picture that will not be seen."""

    capture: int
    seq: int
    cause: str


class StateChanged(ProcessMessage, frozen=True, tag=4):
    """A source's state has changed; as `daemon.capture.sinks.Announce`."""

    capture: int
    session: str | None
    state: State
    reason: str | None
    retry_in_s: float | None
    format: VideoFormat | None


class Connected(ProcessMessage, frozen=True, tag=5):
    """A source has a connection that gives so many frames a second; it waits for `AdmissionReply`.

    Attributes:
        connection: number of the connection; what is said to an earlier one does not count.
    """

    capture: int
    connection: int
    fps: float | None
    format: VideoFormat


class Disconnected(ProcessMessage, frozen=True, tag=6):
    capture: int


class Ended(ProcessMessage, frozen=True, tag=7):
    """Nothing more comes of a source.

    Attributes:
        failure: as `daemon.capture.capture.Capture`.
    """

    capture: int
    failure: str | None


class NewBlock(ProcessMessage, frozen=True, tag=8):
    """Memory that frames will lie in; alone in its packet, with its file descriptor."""

    number: int
    size: int
    device: bool


class BlockGone(ProcessMessage, frozen=True, tag=9):
    number: int


class Heartbeat(ProcessMessage, frozen=True, tag=10):
    """Bytes of the GPU that decoders are planned to take; told every moment, as a sign of life."""

    memory: int


class Failed(ProcessMessage, frozen=True, tag=11):
    """The process cannot go on."""

    reason: str


FromCapture = (
    DeviceFrame
    | HostFrame
    | PictureSkipped
    | StateChanged
    | Connected
    | Disconnected
    | Ended
    | NewBlock
    | BlockGone
    | Heartbeat
    | Failed
)

# --- to a capture process ------------------------------------------------------------------------------------------


class Returned(ProcessMessage, frozen=True, tag=1):
    """Places that nobody reads any more: block and offset."""

    places: list[tuple[int, int]]


class AdmissionReply(ProcessMessage, frozen=True, tag=2):
    """To `Connected`: None if the source may give frames, otherwise why not."""

    capture: int
    connection: int
    refusal: str | None


class Share(ProcessMessage, frozen=True, tag=3):
    """What a connection has of the detector and the decoder."""

    capture: int
    connection: int
    quota: Quota


class Stop(ProcessMessage, frozen=True, tag=4):
    """End when all sources have; they are asked to."""


class Add(ProcessMessage, frozen=True, tag=5):
    """Another source.

    Attributes:
        task: a pickled `daemon.capture.processes.main.Task`.
    """

    task: bytes


class Remove(ProcessMessage, frozen=True, tag=6):
    """A source is to end; `Ended` is the answer."""

    capture: int


class Disown(ProcessMessage, frozen=True, tag=7):
    """A source that was to end did not: nobody listens to it any more."""

    capture: int


ToCapture = Returned | AdmissionReply | Share | Stop | Add | Remove | Disown


class NoDescriptorError(Exception):
    """This process has as many as it may have."""


class Channel:
    """One end of a socket of packets, each a list of messages. One thread receives; any may send, for the socket takes
    a packet whole.

    Args:
        end: of `pair`; where it does not block, neither do these calls.
        kind: of the messages that come in.
    """

    def __init__(self, end: socket.socket, kind: object) -> None:
        self.socket = end
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(list[kind]).decode  # type: ignore[valid-type]
        self._buffer = bytearray(_PACKET_BYTES)
        self._view = memoryview(self._buffer)
        self._scrap = bytearray(1)
        self._descriptors_due = 0

    def send(self, messages: Sequence[ProcessMessage], fd: int | None = None) -> bool:
        """Send one packet, and with it a file descriptor; False if it would have to wait and does not.

        Raises:
            OSError: the other end is gone.
        """
        data = self._encode(messages)
        try:
            if fd is None:
                self.socket.send(data)
            else:
                self.socket.send(_DESCRIPTOR_FOLLOWS)
                socket.send_fds(self.socket, [data], [fd])
        except BlockingIOError:
            return False
        return True

    def receive(self) -> tuple[list[ProcessMessage], int | None] | None:
        """One packet and the file descriptor in it; no messages if nothing has come; None if the other end is gone.

        Raises:
            NoDescriptorError: for the one that is in the packet. The packet stays: it is the next to be received.
        """
        if self._descriptors_due:
            return self._receive_with_descriptor()
        try:
            size = self.socket.recv_into(self._buffer)
        except (BlockingIOError, ConnectionResetError):  # after a reset comes what was sent before, and then the end
            return [], None
        if size == 0:
            return None
        if self._view[:size] == _DESCRIPTOR_FOLLOWS:
            self._descriptors_due += 1
            return self._receive_with_descriptor()
        return self._decode(self._view[:size]), None

    def _receive_with_descriptor(self) -> tuple[list[ProcessMessage], int | None] | None:
        """The same where a descriptor is on its way; other threads' packets may come before it.

        The packet is looked at first and taken when its descriptor is there, which costs a second call of the system,
        and with it the interpreter's lock: too much for every packet.
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
            self._take_away()
            if self._view[:size] == _DESCRIPTOR_FOLLOWS:
                self._descriptors_due += 1
                return self._receive_with_descriptor()
            self._descriptors_due -= len(fds)
            return self._decode(self._view[:size]), fds[0] if fds else None
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise

    def _take_away(self) -> None:
        """The packet that was looked at, however long it is."""
        try:
            self.socket.recv_into(self._scrap)
        except ConnectionResetError:  # the other end has gone since; that is told once
            self.socket.recv_into(self._scrap)

    def close(self) -> None:
        self.socket.close()


def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends: the daemon's, which does not block, and a capture process's, which does."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _PACKET_BYTES)
    ends[0].setblocking(False)
    return ends
