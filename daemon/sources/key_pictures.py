"""Key pictures: nothing of a live stream can be decoded before the first, and what is lost comes back with the next."""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

from av.packet import Packet

from daemon.errors import DecodeError, NoKeyError, SourceError
from daemon.redact import Url
from daemon.sources.bitstream import Bitstream

_HINT = ": it has sent no key picture yet; set the camera to send one every second or two"
_LIMIT_S = 600.0  # without a key picture, after which another connection may bring one
_KEYED = ("h264", "hevc")  # codecs whose pictures refer to others for long
_HEAD_BYTES = 4096  # of a packet, with all that stands before its picture


class KeyPictures:
    """Those of one connection.

    Attributes:
        has_begun: the first has come.
    """

    def __init__(self, url: Url) -> None:
        self._url = url
        self.has_begun = False
        self._undecoded = 0  # key pictures since the last picture that was decoded
        self._decoded_ns = monotonic_ns()  # when that was, or the connection began

    @property
    def hint(self) -> str:
        """The advice for a picture that cannot be decoded; empty if it is not for want of a key picture."""
        return "" if self.has_begun else _HINT

    def note_packet(self, packet: Packet[Any]) -> None:
        self.has_begun = self.has_begun or packet.is_keyframe
        self._undecoded += packet.is_keyframe

    def note_decoded(self) -> None:
        self._undecoded, self._decoded_ns = 0, monotonic_ns()

    def require(self, packet: Packet[Any], codec: str, bitstream: Bitstream) -> None:
        """Pass packets over until the first that a decoder can begin with. A decoder would show grey.

        Raises:
            NoKeyError: it has not come yet.
        """
        self.has_begun = packet.is_keyframe or codec not in _KEYED
        self.has_begun = self.has_begun or bitstream.begins_recovery(bytes(memoryview(packet)[:_HEAD_BYTES]))
        if not self.has_begun:
            raise self.lost(NoKeyError(f"a picture of {self._url} cannot be decoded{_HINT}"))

    def lost(self, error: DecodeError) -> DecodeError:
        """The loss of a picture, marked if it is not worth another connection: the next key picture may bring the rest.

        Raises:
            SourceError: none has come for too long.
        """
        if self._undecoded:
            return error
        waited = (monotonic_ns() - self._decoded_ns) / 1e9
        if waited > _LIMIT_S:
            raise SourceError(f"no key picture of {self._url} in {waited:.0f} s; the last: {error}")
        error.await_key()
        return error
