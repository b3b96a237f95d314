"""A client of NATS that tells a server without TLS no secret, and .creds files."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from pathlib import Path

from nats.aio.client import Client
from nats.errors import Error as NatsError

from daemon.bridge.port import AwayError
from daemon.files import read_text

_JWT = re.compile(r"-+BEGIN NATS USER JWT-+\s*(\S+)\s*-+END NATS USER JWT-+")
_SEED = re.compile(r"-+BEGIN USER NKEY SEED-+\s*(\S+)\s*-+END USER NKEY SEED-+")
_SEED_BYTES = 2 + 32 + 2  # its kind, the seed, a checksum


class GuardedClient(Client):
    """A client whose login needs TLS, where `is_encrypted` says so: the library goes on without it if the server, or
    somebody on the way, offers none."""

    def __init__(self, *, is_encrypted: bool) -> None:
        super().__init__()
        self._is_encrypted = is_encrypted

    def _connect_command(self) -> bytes:
        if self._is_encrypted and not self._server_info.get("tls_required"):
            raise NatsError("the server offers no TLS: nothing is sent to it")
        return super()._connect_command()


@dataclass(frozen=True, repr=False)
class Credentials:
    """The JWT and the seed of a .creds file.

    Attributes:
        jwt: of the user.
        seed: of the user's key, as the file has it.
    """

    jwt: str
    seed: str

    def sign(self, nonce: str) -> bytes:
        """The signature of a server's nonce, in base64."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        raw = base64.b32decode(self.seed + "=" * (-len(self.seed) % 8))
        return base64.b64encode(Ed25519PrivateKey.from_private_bytes(raw[2:34]).sign(nonce.encode()))


def credentials_of(file: Path) -> Credentials:
    """
    Raises:
        AwayError: it cannot be read now, or is no such file.
    """
    try:
        text = read_text(file)
    except OSError as error:
        raise AwayError(f"credentials_file: {file} cannot be read: {error.strerror}") from error
    jwt, seed = _JWT.search(text), _SEED.search(text)
    if jwt is None or seed is None or not _is_seed(seed[1]):
        raise AwayError(f"credentials_file: {file} is no .creds file: nsc makes one (nsc generate creds)")
    return Credentials(jwt[1], seed[1])


def _is_seed(text: str) -> bool:
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        return False
    return len(raw) == _SEED_BYTES and text.startswith("SU")
