"""CURVE key pairs, in pyzmq's certificate files."""

from __future__ import annotations

from pathlib import Path

import zmq.auth

from daemon.errors import LookoutError


def new_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """Write name.key and name.key_secret (readable by the owner alone) and return their paths.

    Raises:
        LookoutError: the folder cannot be written, or holds a pair of this name.
    """
    secret = folder / f"{name}.key_secret"
    if secret.exists():
        raise LookoutError(f"{secret} exists: choose another --name, or move it away if it is no longer used")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        public_file, secret_file = zmq.auth.create_certificates(folder, name)
        Path(secret_file).chmod(0o600)
    except OSError as error:
        raise LookoutError(f"cannot write keys to {folder}: {error.strerror}") from error
    return Path(public_file), Path(secret_file)
