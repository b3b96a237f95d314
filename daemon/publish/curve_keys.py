"""CURVE keys, in pyzmq's certificate files."""

from __future__ import annotations

from pathlib import Path

import zmq
import zmq.auth

from daemon.config.publisher import CurveConfig
from daemon.errors import ConfigError, LookoutError
from daemon.files import check_is_file


def new_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """Write name.key and name.key_secret (readable by the owner alone) and return their paths.

    Raises:
        LookoutError: the folder cannot be written, or has a pair of this name.
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


def secret_key(config: CurveConfig) -> bytes:
    """The server's secret key, 40 characters of Z85.

    Raises:
        ConfigError: it cannot be read, or is not a key.
    """
    try:
        if config.secret_key_file is not None:
            check_is_file(config.secret_key_file)
            _, secret = zmq.auth.load_certificate(config.secret_key_file)
            if secret is None:
                raise ConfigError(
                    f"publisher.curve.secret_key_file: {config.secret_key_file} has no secret key: use the .key_secret"
                )
        else:
            secret = (config.secret_key.reveal() if config.secret_key else "").encode()
        zmq.curve_public(secret)
    except (OSError, ValueError, zmq.ZMQError) as error:
        where = config.secret_key_file or "publisher.curve.secret_key"
        raise ConfigError(
            f"publisher.curve: {where} is not a readable CURVE key: make a pair with `lookout keys new`"
        ) from error
    return secret
