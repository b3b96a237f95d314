"""Tries a store in a process of its own: a write to a file system that hangs cannot be ended by anybody.

`main` is that process. It leaves nothing in the store.
"""

from __future__ import annotations

import os
import secrets
import select
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import msgspec

from daemon.recording.errors import StoreAwayError, StoreError
from daemon.recording.index_reader import NAME, IndexReader
from daemon.recording.store import FILE_MODE, Store, is_unused, translated
from daemon.system.children import finish, spawn

TRIAL_BYTES = 64 << 20
SILENT_S = 5.0  # a store that does nothing for so long hangs
_LONGEST_S = 10.0  # of the writing: of a slower disk less is written
_PIECE_BYTES = 4 << 20  # written and synchronized at once
_RATE_NS = 6 * 3600 * 1_000_000_000  # the newest recordings of each source, which tell its rate
_REAP_S = 0.2


@dataclass(frozen=True)
class TrialOrder:
    """Attributes:
    path: of the store.
    alone: no daemon may record into it now.
    size: bytes to write.
    """

    path: str
    must_be_mount: bool
    alone: bool
    sources: Sequence[str]
    size: int = TRIAL_BYTES


class Trial(msgspec.Struct, frozen=True, tag=True):
    """A store as it was found.

    Attributes:
        problem: why it cannot be used; None if it can.
        is_new: it becomes a store when it is first recorded into.
        bytes: of its recordings.
        free_bytes, disk_bytes: of its disk.
        bytes_per_s: that were written; None where the disk has no room to try.
        rates: bytes a second of the sources that it has recordings of.
    """

    problem: str | None = None
    is_new: bool = False
    bytes: int = 0
    free_bytes: int = 0
    disk_bytes: int = 0
    bytes_per_s: float | None = None
    rates: Mapping[str, float] = {}


class _Step(msgspec.Struct, frozen=True, tag=True):
    """It goes on.

    Attributes:
        doing: what comes next.
    """

    doing: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Trial | _Step).decode
_Tell = Callable[[str], None]


def try_store(order: TrialOrder, silent_s: float = SILENT_S) -> Trial:
    """Open a store, and measure how fast it is written to. A store that hangs is left behind, with its process."""
    mine, theirs = os.pipe()
    try:
        try:
            process = spawn(__name__, order, [theirs])
        except OSError as error:
            return Trial(f"{order.path}: no process can be started to try it: {error.strerror}")
        finally:
            os.close(theirs)
        doing = "opening it"
        try:
            for line in _lines(mine, silent_s):
                if line is None:
                    return Trial(f"{order.path}: does not answer: {doing} takes longer than {silent_s:g} s")
                told = _decode(line)
                if isinstance(told, Trial):
                    return told
                doing = told.doing
        finally:
            finish(process, 0.0, _REAP_S)
        return Trial(f"{order.path}: the process that tried it has ended, while {doing}")
    finally:
        os.close(mine)


def _lines(pipe: int, silent_s: float) -> Iterator[bytes | None]:
    """Lines as they come; None, and no more, after a silence."""
    poller = select.poll()
    poller.register(pipe, select.POLLIN)
    rest = b""
    while poller.poll(silent_s * 1000):
        content = os.read(pipe, 1 << 16)
        if not content:
            return
        *lines, rest = (rest + content).split(b"\n")
        yield from lines
    yield None


# --- the process -----------------------------------------------------------------------------------------------------


def main(order: TrialOrder, end: int) -> int:
    """
    Args:
        end: of the pipe that takes what is found.
    """

    def write(told: Trial | _Step) -> None:
        os.write(end, _encode(told) + b"\n")

    try:
        with translated(order.path):
            found = _tried(order, lambda doing: write(_Step(doing)))
    except StoreError as error:
        found = Trial(str(error))
    write(found)
    return 0


def _tried(order: TrialOrder, tell: _Tell) -> Trial:
    path = Path(order.path)
    try:
        store = Store.open(path, must_be_mount=order.must_be_mount, makes=False)
    except StoreAwayError:
        if order.must_be_mount or not is_unused(path):
            raise
        with _made(path):
            return Trial(None, True, 0, *_room(path), _written(path, order.size, tell))
    with closing(store):
        if order.alone:
            store.claim()
        tell("reading its index")
        sizes, rates = _recorded(store, order.sources)
        return Trial(None, False, sizes, *_room(path), _written(path, order.size, tell), rates)


@contextmanager
def _made(path: Path) -> Iterator[None]:
    """With the folder, which is gone afterwards if it was not there before."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    made: list[Path] = []
    try:
        for folder in reversed(missing):
            folder.mkdir()
            made.append(folder)
        yield
    finally:
        for folder in reversed(made):
            with suppress(OSError):  # a daemon has begun to use it
                folder.rmdir()


def _room(path: Path) -> tuple[int, int]:
    """Bytes that are free, for us, and of the disk."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


def _recorded(store: Store, sources: Sequence[str]) -> tuple[int, dict[str, float]]:
    """Bytes of all recordings, and bytes a second of each source that has some."""
    rates: dict[str, float] = {}
    if not (store.path / NAME).exists():
        return 0, rates
    with closing(IndexReader(store)) as index:
        for source in sources:
            newest = index.newest(source)
            files = index.files(source, newest.end - _RATE_NS, newest.end) if newest else []
            seconds = sum(row.end - row.begin for row in files) / 1e9
            if seconds >= 1:
                sizes = index.file_sizes(source, newest.end - _RATE_NS, newest.end) if newest else {}
                rates[source] = sum(sizes.values()) / seconds
        return sum(index.sizes().values()), rates


def _written(folder: Path, size: int, tell: _Tell) -> float | None:
    """Bytes a second, each piece on the disk before the next; None if there is no room for so much."""
    if _room(folder)[0] < 2 * size:
        return None
    piece = os.urandom(min(size, _PIECE_BYTES))
    name = folder / f".lookout-check-{secrets.token_hex(8)}"
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        with suppress(OSError):  # a share on which open files stay; otherwise it is gone even if this is killed
            name.unlink()
        written, began = 0, perf_counter()
        while written < size and perf_counter() - began < _LONGEST_S:
            tell(f"writing {len(piece) >> 20} MiB")
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(file, rest) :]
            os.fdatasync(file)
            written += len(piece)
        return written / max(1e-9, perf_counter() - began)
    finally:
        os.close(file)
        with suppress(FileNotFoundError):
            name.unlink()
