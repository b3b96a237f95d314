"""Downloads with resume and checksum."""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from daemon import __version__
from daemon.errors import LookoutError

_TIMEOUT_S = 30.0  # without a byte
_PIECE = 1 << 16
Progress = Callable[[int], None]
"""Called with the number of bytes so far."""


def download(url: str, path: Path, size: int, sha256: str, progress: Progress = lambda _: None) -> None:
    """Fetch a file of known content. Proxies come from the environment (HTTPS_PROXY, NO_PROXY).

    A partial download is kept and resumed next time. Concurrent downloads of a file are serialised: the second finds it
    complete.

    Raises:
        LookoutError: it cannot be fetched or written, or has other content; says what to do.
    """
    shown = without_secrets(url)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.with_name(f".{path.name}.lock")):
            if path.exists() and is_complete(path, size, sha256):
                return
            part = path.with_name(f".{path.name}.part")
            _fetch(url, part, size, progress)
            if not is_complete(part, size, sha256):
                part.unlink()
                raise LookoutError(
                    f"{shown} has unexpected content (expected {size:,} bytes, SHA-256 {sha256[:12]}...): it was "
                    "changed on the way or by its makers; nothing was kept"
                )
            part.replace(path)
    except OSError as error:
        raise LookoutError(f"{path} cannot be written: {error.strerror or error}") from error


def is_complete(path: Path, size: int, sha256: str) -> bool:
    """Whether a file has this size and digest."""
    if path.stat().st_size != size:
        return False
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest() == sha256


def without_secrets(url: str) -> str:
    """A URL for display: without user, password and query, where mirrors have tokens."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "this URL"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _fetch(url: str, part: Path, size: int, progress: Progress) -> None:
    have = part.stat().st_size if part.exists() else 0
    if have > size:  # a part of another version
        have = 0
    if have == size:
        return
    shown = without_secrets(url)
    if not url.lower().startswith(("http://", "https://")):
        raise LookoutError(f"{shown}: only http and https URLs can be downloaded")
    request = urllib.request.Request(url, headers={"User-Agent": f"lookout/{__version__}"})  # noqa: S310
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
            resumes = answer.status == http.client.PARTIAL_CONTENT
            with part.open("ab" if resumes else "wb") as file:
                _copy(answer, file, have if resumes else 0, size, progress)
    except urllib.error.HTTPError as error:
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink(missing_ok=True)
        raise LookoutError(f"{shown}: its server answers {error.code} {error.reason}") from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise LookoutError(
            f"cannot fetch {shown}: {reason}; try again to resume. Behind a proxy, set HTTPS_PROXY; without a "
            "network, fetch it elsewhere and pass its path"
        ) from error


def _copy(answer: http.client.HTTPResponse, file: BinaryIO, have: int, size: int, progress: Progress) -> None:
    progress(have)
    while piece := answer.read(_PIECE):
        have += len(piece)
        if have > size:
            raise LookoutError(f"the server sent more than the expected {size:,} bytes: it is another file")
        file.write(piece)
        progress(have)
    file.flush()
    os.fsync(file.fileno())
    if have < size:
        raise http.client.IncompleteRead(b"", size - have)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
