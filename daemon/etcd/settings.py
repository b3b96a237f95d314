"""Where an etcd is, and how it is reached."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from daemon.etcd.errors import EtcdError
from daemon.files import check_is_file
from daemon.redact import Secret


class Endpoint(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Tls:
    """PEM files.

    Attributes:
        ca: of etcd's certificates; None for the CAs of the system.
        certificate: of this client, None without one.
        key: of that certificate.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True)
class User:
    name: str
    password: Secret


@dataclass(frozen=True)
class EtcdSettings:
    """May be pickled.

    Attributes:
        endpoints: tried in turn.
        tls: None for plain TCP.
        user: None without authentication.
        limit_s: of each call, over all endpoints.
        silence_s: a watch that is silent for so long is asked for anew, because a dead peer is silent too.
    """

    endpoints: tuple[Endpoint, ...]
    tls: Tls | None = None
    user: User | None = None
    limit_s: float = 5.0
    silence_s: float = 5.0


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Read the files.

    Raises:
        EtcdError: names the file.
    """
    context = ssl.create_default_context()
    if tls.ca is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # this CA alone
        try:
            check_is_file(tls.ca)
            context.load_verify_locations(tls.ca)
        except (OSError, ssl.SSLError) as error:
            raise EtcdError(f"{tls.ca}: {_reason(error, 'holds no certificate in PEM')}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.certificate is not None:
        _load_certificate(context, tls.certificate, tls.key)
    return context


def _load_certificate(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    for path in filter(None, (certificate, key)):
        try:
            check_is_file(path)
            path.read_bytes()
        except OSError as error:
            raise EtcdError(f"{path}: {error.strerror}") from error
    try:
        # An empty password, so that OpenSSL never asks for one at a terminal.
        context.load_cert_chain(certificate, key, password=b"")
    except (OSError, ssl.SSLError) as error:
        fault = "are no certificate and its key in PEM, or the key is encrypted"
        raise EtcdError(f"{certificate} and {key}: {_reason(error, fault)}") from error


def _reason(error: OSError, otherwise: str) -> str:
    if isinstance(error, ssl.SSLError):
        return "the key belongs to another certificate" if error.reason == "KEY_VALUES_MISMATCH" else otherwise
    return error.strerror or str(error)
