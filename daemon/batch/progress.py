"""The progress of a batch as a person sees it: a bar on a terminal, and a line now and then elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from daemon.batch.clips import Clip
from daemon.batch.store import BatchView
from daemon.clock import Clock
from daemon.progress import duration
from daemon.redact import printable

_EVERY_NS = 10_000_000_000  # between two lines where there is no terminal
_RATED_NS = 1_000_000_000  # a rate over less is none
_SHOWN = 3  # names of clips


@dataclass(frozen=True)
class Playing:
    """A clip that this worker plays.

    Attributes:
        share: of its length that is played, 0-1; 0 while that is not known.
        frames: so far.
    """

    clip: int
    name: str
    share: float = 0.0
    frames: int = 0


class BatchProgress(Protocol):
    """Shows a person how a batch goes on."""

    def show(self, view: BatchView, playing: Sequence[Playing]) -> None:
        """The state of the batch, and the clips that this worker plays."""

    def note(self, words: str) -> None:
        """Something that the person should know."""

    def close(self) -> None: ...


class Estimate:
    """The time that is left, by the bytes that all workers have done since the first look: of clips that are done, and
    of those that play here."""

    def __init__(self, clips: Sequence[Clip], clock: Clock) -> None:
        self._sizes, self._clock = [clip.size for clip in clips], clock
        self._began: tuple[int, float] | None = None  # monotonic ns, and bytes done before
        self._frames = dict[int, int]()  # of each clip that has played here
        self._playing_ns = 0  # since the first frame

    def share(self, view: BatchView, playing: Sequence[Playing]) -> float:
        """Of all bytes."""
        return self._bytes(view, playing) / max(1, sum(self._sizes))

    def rate(self, playing: Sequence[Playing]) -> float | None:
        """Frames a second that are analysed here; None before the first second."""
        self._frames |= {row.clip: row.frames for row in playing}
        frames, now = sum(self._frames.values()), self._clock.monotonic_ns()
        if not frames:
            return None
        self._playing_ns = self._playing_ns or now
        passed = now - self._playing_ns
        return frames / passed * 1e9 if passed >= _RATED_NS else None

    def seconds(self, view: BatchView, playing: Sequence[Playing]) -> float | None:
        """None before something is done."""
        done = self._bytes(view, playing)
        now = self._clock.monotonic_ns()
        if self._began is None:
            self._began = now, done
        began, before = self._began
        if done <= before or now <= began:
            return None
        return (sum(self._sizes) - done) * (now - began) / 1e9 / (done - before)

    def _bytes(self, view: BatchView, playing: Sequence[Playing]) -> float:
        here = sum(self._sizes[row.clip] * row.share for row in playing if row.clip not in view.outcomes)
        return sum(self._sizes[clip] for clip in view.outcomes) + here


class TerminalProgress:
    """Implements `BatchProgress` with a bar."""

    def __init__(self, clips: Sequence[Clip], console: Console, clock: Clock) -> None:
        columns = (TextColumn("{task.fields[clips]} clips"), BarColumn(), TextColumn("{task.description}"))
        self._progress = Progress(*columns, console=console, transient=True)
        self._estimate = Estimate(clips, clock)
        self._total = len(clips)
        self._task = self._progress.add_task("", total=1.0, clips=f"0/{self._total}")
        self._progress.start()

    def show(self, view: BatchView, playing: Sequence[Playing]) -> None:
        words = _state(view, self._estimate, playing)
        names = ", ".join(printable(row.name) for row in playing[:_SHOWN])
        more = f" and {len(playing) - _SHOWN} more" if len(playing) > _SHOWN else ""
        description = f"{words} [dim]{names.replace('[', chr(92) + '[')}{more}"
        share, clips = self._estimate.share(view, playing), f"{len(view.outcomes)}/{self._total}"
        self._progress.update(self._task, completed=share, description=description, clips=clips)

    def note(self, words: str) -> None:
        self._progress.console.print(words, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        self._progress.stop()


class LineProgress:
    """Implements `BatchProgress` with a line every 10 s at most, where something has changed."""

    def __init__(self, clips: Sequence[Clip], console: Console, clock: Clock) -> None:
        self._total, self._console, self._clock = len(clips), console, clock
        self._estimate = Estimate(clips, clock)
        self._shown = (-1, 0, 0)  # outcomes, frames, and when: monotonic ns

    def show(self, view: BatchView, playing: Sequence[Playing]) -> None:
        (count, frames, at), now = self._shown, self._clock.monotonic_ns()
        words, here = _state(view, self._estimate, playing), sum(row.frames for row in playing)
        if (len(view.outcomes), here) == (count, frames) or (count >= 0 and now - at < _EVERY_NS):
            return
        self._shown = len(view.outcomes), here, now
        self.note(f"{len(view.outcomes)}/{self._total} clips: {words}, {len(playing)} playing here")

    def note(self, words: str) -> None:
        self._console.print(words, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Holds nothing."""


def _state(view: BatchView, estimate: Estimate, playing: Sequence[Playing]) -> str:
    seconds, rate = estimate.seconds(view, playing), estimate.rate(playing)
    failed = sum(outcome.state == "failed" for outcome in view.outcomes.values())
    parts = [f"{failed} failed"] if failed else []
    parts += [f"{view.workers} workers"] if view.workers > 1 else []
    parts += [f"{sum(row.frames for row in playing):,} frames"] if len(playing) == 1 else []
    parts += [] if rate is None else [f"{rate:,.1f} frames a second"]
    parts += [] if seconds is None else [f"{duration(seconds)} left"]
    return ", ".join(parts) or "working"
