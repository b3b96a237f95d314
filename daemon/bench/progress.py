"""A progress bar on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(unit: str, total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar; the yielded function prints a line and advances it.

    A single run has none, and imports nothing for one: this process is measured.
    """
    if total == 1:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(unit), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), "left", TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total)

        def advance(text: str) -> None:
            if text:
                bar.console.print(text, highlight=False, markup=False, soft_wrap=True)
            bar.advance(task)

        yield advance
