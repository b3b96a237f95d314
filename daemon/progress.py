"""Shows how far a long task is: a bar on a terminal, a line every ten seconds elsewhere. Both on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from daemon.clock import Clock, SystemClock
from daemon.redact import printable

if TYPE_CHECKING:
    from rich.console import Console

Tell = Callable[[float, float], None]
"""Called with how much is done, and of how much; 0 where that is not known."""

_EVERY_NS = 10_000_000_000  # between two lines where there is no terminal
_LEAST_RATE = 0.05  # that is more than 0.0
_RATED_NS = 1_000_000_000  # a rate over less is none


class Progress:
    """Shows one task. Any thread may call it, one at a time.

    Args:
        what: the task.
        unit: of what is counted; "s" for time, which has no rate.
        console: a terminal; None for that of standard error, if it is one.
        is_plain: lines on a terminal, too: a bar draws ten times a second, in a process that measures itself.
    """

    def __init__(
        self,
        what: str,
        unit: str,
        clock: Clock | None = None,
        console: Console | None = None,
        *,
        is_plain: bool = False,
    ) -> None:
        self._what, self._unit, self._clock = what, unit, clock or SystemClock()
        self._done = self._total = 0.0
        self._began: tuple[int, float] | None = None  # monotonic ns, and what was done by then
        self._told = self._clock.monotonic_ns()
        self._bar = _Bar(what, console) if not is_plain and (console or sys.stderr.isatty()) else None

    def tell(self, done: float, total: float) -> None:
        """See `Tell`."""
        now = self._clock.monotonic_ns()
        self._began = self._began or (now, done)
        self._done, self._total = done, total
        if self._bar is not None:
            self._bar.show(done, total, self.words)
        elif now - self._told >= _EVERY_NS:
            self._told = now
            self._write(f"{self._what}: {self.words}")

    def advance(self) -> None:
        """One more is done."""
        self.tell(self._done + 1, self._total)

    def note(self, words: str) -> None:
        """Something that stays to be read."""
        if self._bar is not None:
            self._bar.note(words)
        else:
            self._write(words)

    @property
    def words(self) -> str:
        """How much is done, how fast, and how long the rest takes."""
        (began, before), now = self._began or (0, 0.0), self._clock.monotonic_ns()
        parts = [f"{self._done:,.0f} of {self._total:,.0f} {self._unit}" if self._total else "working"]
        if not self._total and self._done:
            parts = [f"{self._done:,.0f} {self._unit}"]
        if self._done > before and now - began >= _RATED_NS:
            rate = (self._done - before) / (now - began) * 1e9
            parts += [] if self._unit == "s" or rate < _LEAST_RATE else [f"{rate:,.1f} a second"]
            parts += [f"{duration((self._total - self._done) / rate)} left"] if self._total >= self._done else []
        return ", ".join(parts)

    def close(self) -> None:
        """Take the bar away. A second call does nothing."""
        if self._bar is not None:
            self._bar.close()

    def _write(self, words: str) -> None:
        sys.stderr.write(f"{printable(words)}\n")
        sys.stderr.flush()


@contextmanager
def progress(
    what: str, unit: str, clock: Clock | None = None, console: Console | None = None, *, is_plain: bool = False
) -> Iterator[Progress]:
    """A task that is shown while it goes on: see `Progress`. Ctrl-C ends it with a line that says how far it was."""
    shown = Progress(what, unit, clock, console, is_plain=is_plain)
    try:
        yield shown
    except KeyboardInterrupt:
        shown.note(f"lookout: {what}: stopped: {shown.words}")
        raise
    finally:
        shown.close()


class _Bar:
    """A bar of rich, which is loaded where there is a terminal alone."""

    def __init__(self, what: str, console: Console | None) -> None:
        from rich.console import Console as Terminal
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bars

        columns = TextColumn(printable(what), markup=False), BarColumn(), TextColumn("{task.description}", markup=False)
        self._bars = Bars(*columns, console=console or Terminal(stderr=True), transient=True)
        self._task = self._bars.add_task("", total=None)
        self._bars.start()

    def show(self, done: float, total: float, words: str) -> None:
        self._bars.update(self._task, completed=done, total=total or None, description=printable(words))

    def note(self, words: str) -> None:
        self._bars.console.print(printable(words), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        self._bars.stop()


def duration(seconds: float) -> str:
    """`1:02:03`, without hours where there are none."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
