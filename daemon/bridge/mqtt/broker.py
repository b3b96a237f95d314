"""A broker and packets to it, without a connection."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import NamedTuple

from paho.mqtt.properties import Properties


class Message(NamedTuple):
    """
    Attributes:
        was_retained: it is old, and came because of a subscription.
    """

    topic: str
    body: bytes
    was_retained: bool


@dataclass(frozen=True)
class Login:
    """
    Attributes:
        client_id: the same at each connection, so that a newer one of this bridge takes the place of an older one.
    """

    client_id: str
    user: str | None = None
    password: str | None = None


@dataclass(frozen=True)
class Address:
    """
    Attributes:
        path: of the WebSocket; None for TCP.
        tls: None for plaintext.
    """

    host: str
    port: int
    path: str | None = None
    tls: ssl.SSLContext | None = None


class Ticket:
    """A packet on its way.

    Attributes:
        code: of the broker's answer, as MQTT 5 has it; None before it.
        text: likewise, in words.
    """

    __slots__ = ("code", "text")

    def __init__(self) -> None:
        self.code: int | None = None
        self.text = ""

    def settle(self, code: int, text: str) -> None:
        self.code, self.text = code, text

    @property
    def is_done(self) -> bool:
        return self.code is not None

    @property
    def is_taken(self) -> bool:
        return self.code is not None and self.code < 0x80


def new_properties(packet: int) -> Properties:
    """Empty ones, of a packet of `PacketTypes`."""
    return Properties(packet)  # type: ignore[no-untyped-call]


def shown(address: Address) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"


def reason_of(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__
