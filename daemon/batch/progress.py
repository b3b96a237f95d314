"""The progress of a batch as a person sees it: a bar on a terminal, and a line now and then elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from daemon.batch.clips import Clip
from daemon.batch.store import BatchView
from daemon.clock import Clock
from daemon.redact import printable

_EVERY_NS = 10_000_000_000  # between two lines where there is no terminal
_SHOWN = 3  # names of clips


class BatchProgress(Protocol):
    """Shows a person how a batch goes on."""

    def show(self, view: BatchView, playing: Sequence[str]) -> None:
        """The state of the batch, and the clips that this worker plays."""

    def note(self, words: str) -> None:
        """Something that the person should know."""

    def close(self) -> None: ...


class Estimate:
    """The time that is left, by the bytes of clips that all workers have done since the first look."""

    def __init__(self, clips: Sequence[Clip], clock: Clock) -> None:
        self._sizes, self._clock = [clip.size for clip in clips], clock
        self._began: tuple[int, int] | None = None  # monotonic ns, and bytes done before

    def seconds(self, view: BatchView) -> float | None:
        """None before the first clip is done."""
        done = sum(self._sizes[clip] for clip in view.outcomes)
        now = self._clock.monotonic_ns()
        if self._began is None:
            self._began = now, done
        began, before = self._began
        if done <= before or now <= began:
            return None
        return (sum(self._sizes) - done) * (now - began) / 1e9 / (done - before)


class TerminalProgress:
    """Implements `BatchProgress` with a bar."""

    def __init__(self, clips: Sequence[Clip], console: Console, clock: Clock) -> None:
        columns = (TextColumn("{task.completed}/{task.total} clips"), BarColumn(), TextColumn("{task.description}"))
        self._progress = Progress(*columns, console=console, transient=True)
        self._estimate = Estimate(clips, clock)
        self._task = self._progress.add_task("", total=len(clips))
        self._progress.start()

    def show(self, view: BatchView, playing: Sequence[str]) -> None:
        words = _state(view, self._estimate.seconds(view))
        names = ", ".join(printable(name) for name in playing[:_SHOWN])
        more = f" and {len(playing) - _SHOWN} more" if len(playing) > _SHOWN else ""
        description = f"{words} [dim]{names.replace('[', chr(92) + '[')}{more}"
        self._progress.update(self._task, completed=len(view.outcomes), description=description)

    def note(self, words: str) -> None:
        self._progress.console.print(words, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        self._progress.stop()


class LineProgress:
    """Implements `BatchProgress` with a line at changes, at most every 10 s."""

    def __init__(self, clips: Sequence[Clip], console: Console, clock: Clock) -> None:
        self._total, self._console, self._clock = len(clips), console, clock
        self._estimate = Estimate(clips, clock)
        self._shown = (-1, 0)  # outcomes, and when: monotonic ns

    def show(self, view: BatchView, playing: Sequence[str]) -> None:
        (count, at), now = self._shown, self._clock.monotonic_ns()
        seconds = self._estimate.seconds(view)
        if len(view.outcomes) == count or (count >= 0 and now - at < _EVERY_NS):
            return
        self._shown = len(view.outcomes), now
        self.note(f"{len(view.outcomes)}/{self._total} clips: {_state(view, seconds)}, {len(playing)} playing here")

    def note(self, words: str) -> None:
        self._console.print(words, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Holds nothing."""


def _state(view: BatchView, seconds: float | None) -> str:
    failed = sum(outcome.state == "failed" for outcome in view.outcomes.values())
    parts = [f"{failed} failed"] if failed else []
    parts += [f"{view.workers} workers"] if view.workers > 1 else []
    parts += [] if seconds is None else [f"{duration(seconds)} left"]
    return ", ".join(parts) or "working"


def duration(seconds: float) -> str:
    """`1:02:03`, without hours where there are none."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
