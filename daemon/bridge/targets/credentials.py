"""Files with passwords and certificates, which are read at each connection."""

from __future__ import annotations

import ssl
from pathlib import Path

from daemon.bridge.port import AwayError
from daemon.files import check_can_read, read_text
from daemon.redact import Secret


def secret_of(value: Secret | None, file: Path | None, key: str) -> str | None:
    """A secret of the configuration, or of the file that holds it as it is now; None for neither.

    Raises:
        AwayError: the file cannot be read now.
    """
    if file is None:
        return None if value is None else value.reveal()
    try:
        return read_text(file).rstrip("\r\n")
    except OSError as error:
        raise AwayError(f"{key}: {file} cannot be read: {error.strerror}") from error


def tls_files(ca_file: Path | None, certificate_file: Path | None, key_file: Path | None) -> ssl.SSLContext:
    """TLS of a client that checks the server's name; the system's authorities without a file of them.

    Raises:
        AwayError: a file cannot be read now, or is no PEM.
    """
    try:
        context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except OSError as error:  # ssl.SSLError is one
        raise AwayError(f"ca_file: {ca_file} cannot be read: {error.strerror or error}") from error
    if certificate_file is not None:
        try:
            check_can_read(certificate_file, key_file)
            context.load_cert_chain(certificate_file, key_file, password=_no_password)
        except (OSError, ValueError) as error:
            reason, file = getattr(error, "strerror", None) or error, getattr(error, "filename", None)
            which = file or f"certificate_file: {certificate_file} or key_file"
            raise AwayError(f"{which} cannot be read: {reason}") from error
    return context


def _no_password() -> str:
    raise ValueError("the key has a password: write it without one, and let the bridge alone read it")
