"""Ed25519 signatures. `cryptography` is an optional extra, and loaded when a key is used."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from daemon.errors import LookoutError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_MAX_KEY: Final = 16 << 10  # bytes
_OTHERS: Final = 0o077
_EXTRA: Final = "needs the package cryptography: pip install 'lookoutd[evidence]'"


class SigningKey:
    """A private key.

    Attributes:
        public_pem: the public key that belongs to it.
        fingerprint: of that; see `fingerprint_of`.
    """

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public_pem = _pem_of(key.public_key())
        self.fingerprint = fingerprint_of(self.public_pem)

    def sign(self, data: bytes) -> bytes:
        """64 bytes."""
        return self._key.sign(data)


def make_key(path: Path) -> SigningKey:
    """Write a new private key, which its owner alone may read, and the public one beside it, with `.pub`.

    Raises:
        LookoutError: a file is there already, or cannot be written; or the library is missing.
    """
    with _library():
        from cryptography.hazmat.primitives import serialization as forms
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        made = Ed25519PrivateKey.generate()
        pem = made.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    found = SigningKey(made)
    _write_new(path, pem, 0o600)
    try:
        _write_new(path.with_name(f"{path.name}.pub"), found.public_pem, 0o644)
    except LookoutError:
        path.unlink()
        raise
    return found


def read_key(path: Path) -> SigningKey:
    """
    Raises:
        LookoutError: it is no Ed25519 key, others may read it, or the library is missing; names the file.
    """
    from_file = _read(path, is_secret=True)
    with _library():
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    try:
        key = load_pem_private_key(from_file, None)
    except TypeError as error:
        raise LookoutError(f"{path}: has a password: give a key without one") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise LookoutError(f"{path}: is no private key in PEM: make one by `lookout recordings keys FILE`") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise LookoutError(f"{path}: is no Ed25519 key: make one by `lookout recordings keys FILE`")
    return SigningKey(key)


def read_public_key(path: Path) -> bytes:
    """A public key in PEM.

    Raises:
        LookoutError: it is none of Ed25519, or the library is missing.
    """
    found = _read(path, is_secret=False)
    try:
        return _pem_of(_public_key(found))
    except ValueError as error:
        raise LookoutError(f"{path}: {error}") from error


def is_signed(public_pem: bytes, data: bytes, signature: bytes) -> bool:
    """Whether the owner of a key has signed the data.

    Raises:
        ValueError: it is no public key of Ed25519.
        LookoutError: the library is missing.
    """
    key = _public_key(public_pem)
    with _library():
        from cryptography.exceptions import InvalidSignature
    try:
        key.verify(signature, data)
    except InvalidSignature:
        return False
    return True


def fingerprint_of(public_pem: bytes) -> str:
    """The SHA-256 of a public key as DER, as `openssl pkey -pubin -in FILE -outform DER | sha256sum` says it.

    Raises:
        ValueError, LookoutError: as `is_signed`.
    """
    key = _public_key(public_pem)
    with _library():
        from cryptography.hazmat.primitives import serialization as forms
    der = key.public_bytes(forms.Encoding.DER, forms.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def _public_key(pem: bytes) -> Ed25519PublicKey:
    with _library():
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    try:
        key: Any = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ValueError("is no public key in PEM") from error
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("is no public key of Ed25519")
    return key


def _pem_of(key: Ed25519PublicKey) -> bytes:
    with _library():
        from cryptography.hazmat.primitives import serialization as forms
    return key.public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)


@contextmanager
def _library() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise LookoutError(f"a signature {_EXTRA}") from error


def _read(path: Path, *, is_secret: bool) -> bytes:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                raise LookoutError(f"{path}: is no file")
            if is_secret and found.st_mode & _OTHERS:
                raise LookoutError(f"{path}: others may read this key: chmod 600 {path}")
            if is_secret and found.st_uid not in (0, os.geteuid()):
                raise LookoutError(f"{path}: this key belongs to another user, who may change it")
            return os.read(file, _MAX_KEY)
        finally:
            os.close(file)
    except OSError as error:
        raise LookoutError(f"{path} cannot be read: {error.strerror}") from error


def _write_new(path: Path, content: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        file = os.open(path, flags, mode)
        try:
            os.write(file, content)
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        reason = "it is there already" if error.errno == errno.EEXIST else error.strerror
        raise LookoutError(f"{path} cannot be written: {reason}") from error
