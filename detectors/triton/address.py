"""The address of a model on a server, http://HOST:PORT/NAME or http://HOST:PORT/NAME/VERSION."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from pathlib import Path

from detectors.port import DetectorError

_ADDRESS = re.compile(r"http:/{1,2}(?P<host>\[[0-9a-fA-F:]+\]|[^/:@\[\]]+)(?::(?P<port>\d+))?/(?P<rest>[^?#]+)")
_PORT = 8000


@dataclass(frozen=True)
class Address:
    """Attributes:
    version: None for the newest one.
    """

    host: str
    port: int
    name: str
    version: str | None = None

    @property
    def server(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether the host is this machine. May ask a name server."""
        try:
            rows = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError:
            return False
        return any(_is_own(family, sockaddr[0]) for family, _, _, _, sockaddr in rows)


def address_of(path: Path) -> Address:
    """The address in `Options.path`. A `Path` has one slash where the address has two.

    Raises:
        DetectorError: it is no address of a model.
    """
    found = _ADDRESS.fullmatch(str(path))
    parts = found["rest"].split("/") if found else []
    if found is None or len(parts) > 2 or not all(parts) or not 0 < int(found["port"] or _PORT) < 1 << 16:
        raise DetectorError(
            f"model.path {str(path)!r} is no address of a model on a server: write http://HOST:PORT/NAME, or "
            "http://HOST:PORT/NAME/VERSION, without a user or a query"
        )
    name, version = parts[0], parts[1] if len(parts) == 2 else None
    return Address(found["host"].strip("[]"), int(found["port"] or _PORT), name, version)


def _is_own(family: int, host: object) -> bool:
    """Whether a socket can be bound to an address, which is then one of this machine."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as trial:
            trial.bind((host, 0))
    except OSError:
        return False
    return True
