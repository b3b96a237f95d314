"""Downloads with resume and checksum."""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import os
import queue
import stat
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from daemon import __version__
from daemon.clock import Clock, SystemClock
from daemon.errors import LookoutError

_TIMEOUT_S = 30.0  # without a byte
_PIECE = 1 << 16
_LEAST_RATE = 1024  # bytes a second
_RATED_NS = 60_000_000_000  # over which the rate is judged
_POLL_S = 1.0
Progress = Callable[[int], None]
"""Called with the number of bytes so far."""


def download(
    url: str,
    path: Path,
    size: int,
    sha256: str,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> None:
    """Fetch a file of known content, by http, https or file. Proxies come from the environment (HTTPS_PROXY, NO_PROXY).

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
            with _own_file(part) as file:
                _fetch(url, file, size, progress, clock or SystemClock())
                if not _is_content(file, size, sha256):
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
    with path.open("rb") as file:
        return _is_content(file, size, sha256)


def without_secrets(url: str) -> str:
    """A URL for display: without user, password and query, where mirrors have tokens."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "this URL"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _is_content(file: BinaryIO, size: int, sha256: str) -> bool:
    if os.fstat(file.fileno()).st_size != size:
        return False
    digest = hashlib.sha256()
    file.seek(0)
    while piece := file.read(_PIECE):
        digest.update(piece)
    return digest.hexdigest() == sha256


def _fetch(url: str, file: BinaryIO, size: int, progress: Progress | None, clock: Clock) -> None:
    have = os.fstat(file.fileno()).st_size
    if have > size:  # a part of another version
        have = 0
    if have == size:
        return
    shown = without_secrets(url)
    if urlsplit(url).scheme.lower() not in ("http", "https", "file"):
        raise LookoutError(f"{shown}: only http, https and file URLs can be downloaded")
    transfer = _Transfer(url, have)
    try:
        _copy(transfer, file, have, size, progress, clock)
    except urllib.error.HTTPError as error:
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            file.truncate(0)
        raise LookoutError(f"{shown}: its server answers {error.code} {error.reason}") from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise LookoutError(
            f"cannot fetch {shown}: {reason}; try again to resume. Behind a proxy, set HTTPS_PROXY; without a "
            "network, fetch it elsewhere and pass its path"
        ) from error
    finally:
        transfer.ended.set()


class _Transfer(threading.Thread):
    """Reads an answer piece by piece. A server may keep it waiting for ever: then it is left behind.

    Attributes:
        url: of the answer.
        pieces: bytes of the answer; before them whether it goes on at `have`; at the end None, or an error.
        ended: nobody takes pieces any more.
    """

    def __init__(self, url: str, have: int) -> None:
        super().__init__(name="download", daemon=True)
        self.url, self._have = url, have
        self.pieces: queue.Queue[bool | bytes | Exception | None] = queue.Queue(maxsize=16)
        self.ended = threading.Event()

    def run(self) -> None:
        try:
            for piece in self._answer():
                self._put(piece)
                if self.ended.is_set():
                    return
            self._put(None)
        except urllib.error.HTTPError as error:
            error.close()
            self._put(error)
        except Exception as error:  # noqa: BLE001 - raised again where the pieces are taken
            self._put(error)

    def _answer(self) -> Iterator[bool | bytes]:
        request = urllib.request.Request(self.url, headers={"User-Agent": f"lookout/{__version__}"})  # noqa: S310
        if self._have:
            request.add_header("Range", f"bytes={self._have}-")
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - `_fetch` checks its scheme
            yield answer.status == http.client.PARTIAL_CONTENT
            while piece := answer.read1(_PIECE):
                yield piece

    def _put(self, piece: bool | bytes | Exception | None) -> None:
        while not self.ended.is_set():
            try:
                self.pieces.put(piece, timeout=_POLL_S)
                return
            except queue.Full:
                """The disk is slow."""


def _copy(transfer: _Transfer, file: BinaryIO, have: int, size: int, progress: Progress | None, clock: Clock) -> None:
    transfer.start()
    pace = _Pace(clock)
    while (piece := _next(transfer, pace)) is not None:
        if isinstance(piece, bool):
            have = have if piece else 0
            file.truncate(have)
            file.seek(have)
            if progress is not None:
                progress(have)
            continue
        have += len(piece)
        if have > size:
            raise LookoutError(
                f"{without_secrets(transfer.url)} sends more than the expected {size:,} bytes: it is another file"
            )
        file.write(piece)
        pace.add(len(piece))
        if progress is not None:
            progress(have)
    file.flush()
    os.fsync(file.fileno())
    if have < size:
        raise http.client.IncompleteRead(b"", size - have)


def _next(transfer: _Transfer, pace: _Pace) -> bool | bytes | None:
    while True:
        pace.check()
        try:
            piece = transfer.pieces.get(timeout=_POLL_S)
        except queue.Empty:
            continue
        if isinstance(piece, Exception):
            raise piece
        return piece


class _Pace:
    """Whether an answer comes fast enough to end some day."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._since, self._bytes = clock, clock.monotonic_ns(), 0

    def add(self, count: int) -> None:
        self._bytes += count

    def check(self) -> None:
        """Raises:
        TimeoutError: fewer bytes came than the least rate.
        """
        now = self._clock.monotonic_ns()
        if now - self._since < _RATED_NS:
            return
        if self._bytes < _LEAST_RATE * (now - self._since) / 1e9:
            raise TimeoutError(f"it sends fewer than {_LEAST_RATE:,} bytes a second")
        self._since, self._bytes = now, 0


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with _own_file(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _own_file(path: Path) -> Iterator[BinaryIO]:
    """A file of work, made if it is missing. A link, or anything else of another user, is left alone.

    Raises:
        LookoutError: it is not a file of this user alone.
    """
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if path.is_symlink():
            raise LookoutError(f"{path} is a link, and is not followed: remove it") from error
        raise
    found = os.fstat(number)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
        os.close(number)
        raise LookoutError(f"{path} is not a file of this user alone: remove it")
    with open(number, "r+b") as file:
        yield file
