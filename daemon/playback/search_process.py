"""A search in a process of its own, forked from a template: rules over a day of boxes keep a core busy for long.

It ends when nobody reads what it finds, or with the API's process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from daemon.clock import SystemClock
from daemon.errors import LookoutError
from daemon.recording.index_reader import IndexReader
from daemon.recording.search.answers import error_line, line_of
from daemon.recording.search.asked import Asked
from daemon.recording.search.search import search
from daemon.recording.store import Store
from daemon.redact import printable
from daemon.system.tuning import come_last, disable_core_dumps


@dataclass(frozen=True)
class SearchTask:
    """The work of the process.

    Attributes:
        store: its folder.
    """

    store: Path
    must_be_mount: bool
    asked: Asked


def main(task: SearchTask, out: int) -> int:
    """
    Args:
        out: socket that takes the lines.
    """
    disable_core_dumps()
    come_last()
    with os.fdopen(out, "wb", buffering=0) as file:
        try:
            _search(task, file.write)
        except (BrokenPipeError, ConnectionResetError):
            return 0  # nobody reads it any more
        except LookoutError as error:
            file.write(error_line(printable(str(error))))
        except OSError as error:
            file.write(error_line(f"the store cannot be read: {error.strerror or error}"))
    return 0


def _search(task: SearchTask, write: Callable[[bytes], object]) -> None:
    with (
        closing(Store.open(task.store, must_be_mount=task.must_be_mount, makes=False)) as store,
        closing(IndexReader(store)) as index,
    ):
        for answer in search(store, index, task.asked, SystemClock().utc_ns()):
            write(line_of(answer))
