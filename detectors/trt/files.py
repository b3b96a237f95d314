"""Files that several processes read and write."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

POLL_S = 0.1  # between attempts to lock


@contextmanager
def locked(path: Path, on_wait: Callable[[float], None] = lambda _: None) -> Iterator[None]:
    """Hold a file lock; the kernel releases it if the process dies.

    Args:
        on_wait: called repeatedly with the seconds waited.
    """
    with path.open("w") as file:
        began, pause = monotonic(), threading.Event()
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                on_wait(monotonic() - began)
                pause.wait(POLL_S)
        yield


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    temporary = path.with_suffix(path.suffix + ".new")
    temporary.write_bytes(content)
    os.replace(temporary, path)
