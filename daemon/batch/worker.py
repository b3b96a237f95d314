"""A worker: claims clips, plays several at a time, publishes their results, until every clip has an outcome."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from daemon.batch.attempts import Attempt, Reader
from daemon.batch.clips import Clip
from daemon.batch.folder import FolderError, Result, ResultError, ResultFolder
from daemon.batch.player import Player
from daemon.batch.progress import BatchProgress
from daemon.batch.resume import has_result
from daemon.batch.settings import Recipe
from daemon.batch.store import (
    MAX_ATTEMPTS,
    BatchView,
    ClaimsLostError,
    ClipStore,
    ModelFacts,
    Outcome,
    StoreAwayError,
)
from daemon.clock import Bell, Clock
from daemon.errors import LookoutError
from daemon.redact import printable, scrub
from daemon.system.stop_token import StopToken
from lookout.messages import Model

log = structlog.get_logger(__name__)
ALL_DONE, SOME_FAILED, STOPPED = 0, 1, 5  # exit codes
_POLL_S = 0.2
_VIEW_NS = 1_000_000_000  # between two looks at what other workers do


@dataclass(frozen=True)
class Job:
    """Attributes:
    clips: of the whole batch.
    retry_failed: try clips again that have failed.
    """

    clips: Sequence[Clip]
    recipe: Recipe
    folder: ResultFolder
    retry_failed: bool = False


@dataclass(frozen=True)
class Waiting:
    """Attributes:
    bell: rings when there is something to do.
    stop: ends the work; what is not whole is thrown away.
    """

    clock: Clock
    bell: Bell
    stop: StopToken


class BatchWorker:
    """Works in the thread that calls `run`.

    Args:
        player: closed at the end, and so are the store and the folder of the job.
    """

    def __init__(self, job: Job, store: ClipStore, player: Player, progress: BatchProgress, waiting: Waiting) -> None:
        self._job, self._store, self._player, self._progress = job, store, player, progress
        self._clock, self._bell, self._stop = waiting.clock, waiting.bell, waiting.stop
        self._folder, self._clips = job.folder, job.clips
        self._first = secrets.randbits(32)  # of the clips, where this worker begins beside others
        self._view, self._viewed_ns = BatchView(), 0
        self._attempts: dict[str, Attempt] = {}  # by source
        self._uncertain: list[Attempt] = []  # published, but the claim was lost before the record
        self._numbers = itertools.count()
        self._models: dict[str, Model] = {}  # by name; empty until they are opened
        self._reader = Reader(waiting.bell.ring)
        self._is_away = False

    def run(self) -> int:
        """Work until every clip has an outcome; returns the exit code.

        Raises:
            LookoutError, DetectorError: the batch cannot go on.
            StoppedError: a stop was requested while the models were opened.
        """
        try:
            self._resume()
            while not self._stop.is_set:
                if (code := self._player.failure) is not None:
                    return code
                self._turn()
                if self._is_over:
                    return SOME_FAILED if self._failed else ALL_DONE
                self._clock.wait(self._bell, _POLL_S)
            return STOPPED
        finally:
            self._close()

    @property
    def view(self) -> BatchView:
        """The state of the batch, as it was seen last."""
        return self._view

    # --- one turn ----------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        try:
            self._collect()
            self._settle()
            self._drop_lost()
            self._refresh()
            self._claim()
            self._begin_read()
        except StoreAwayError as error:
            if not self._is_away:
                self._progress.note(f"{error}; clips that play go on while their claims hold")
            self._is_away = True
        else:
            if self._is_away:
                self._progress.note("the coordinator is back")
            self._is_away = False
        self._progress.show(self._view, [attempt.playing for attempt in self._attempts.values()])

    def _refresh(self, *, at_once: bool = False) -> None:
        now = self._clock.monotonic_ns()
        if at_once or now - self._viewed_ns >= _VIEW_NS:
            self._view, self._viewed_ns = self._store.view(), now

    @property
    def _is_over(self) -> bool:
        return not self._attempts and len(self._view.outcomes) >= len(self._clips)

    @property
    def _done(self) -> Outcome:
        return Outcome(state="done", folder=self._folder.id, where=self._folder.where)

    @property
    def _failed(self) -> list[int]:
        return [clip for clip, outcome in self._view.outcomes.items() if outcome.state == "failed"]

    # --- resume ------------------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        """Take results that are there for done, and forget outcomes without one.

        Raises:
            LookoutError: a result is of other settings, or of another recording.
        """
        self._refresh(at_once=True)
        there = [clip for clip in self._clips if self._has_result(clip)]
        numbers = {clip.number for clip in there}
        gone = [
            number
            for number, outcome in self._view.outcomes.items()
            if outcome.state == "done" and outcome.folder == self._folder.id and number not in numbers
        ]
        again = self._failed if self._job.retry_failed else []
        if gone or again:
            self._store.reopen([*gone, *again])
        for number in self._store.claim([clip.number for clip in there if clip.number not in self._view.outcomes]):
            self._store.finish(number, self._done)
        if there:
            self._progress.note(f"{len(there)} of {len(self._clips)} results are there already")
        self._refresh(at_once=True)

    def _has_result(self, clip: Clip) -> bool:
        return has_result(self._folder, self._job.recipe, clip)

    # --- claims ------------------------------------------------------------------------------------------------------

    def _claim(self) -> None:
        """Claim as many clips as there is room for, but no more than this worker's share of what is left."""
        left = len(self._clips) - len(self._view.outcomes)
        share = -(-left // max(1, self._view.workers))
        room = min(share, self._job.recipe.at_once) - len(self._attempts)
        if room <= 0 or any(attempt.number >= MAX_ATTEMPTS for attempt in self._attempts.values()):
            return
        wanted = self._free()[:room]
        if not wanted:
            return
        for number, attempt in self._store.claim(wanted).items():
            self._add(self._clips[number], attempt)
        self._refresh(at_once=True)

    def _add(self, clip: Clip, number: int) -> None:
        source = f"clip-{next(self._numbers)}"
        attempt = self._attempts[source] = Attempt(clip, number, source, self._reader.read(clip.path))
        if number > MAX_ATTEMPTS:
            attempt.fail(f"{MAX_ATTEMPTS} attempts ended without a result, and without a reason")
        elif self._has_result(clip):  # of a worker that was killed before the record of it
            attempt.note_published()

    def _free(self) -> list[int]:
        """Clips without outcome and claim, in the order of this worker: those that were never tried come first.

        The last attempt of a clip is made alone: a clip that kills its process does not take others with it for good.
        """
        view, mine = self._view, {attempt.clip.number for attempt in self._attempts.values()}
        free = [
            clip.number
            for clip in self._clips
            if clip.number not in view.outcomes and clip.number not in view.claimed and clip.number not in mine
        ]
        fresh = [number for number in free if not view.attempts.get(number)]
        begin = self._first % len(fresh) if fresh else 0
        again = [number for number in free if 0 < view.attempts.get(number, 0) < MAX_ATTEMPTS - 1]
        last = [number for number in free if view.attempts.get(number, 0) >= MAX_ATTEMPTS - 1]
        early = [*fresh[begin:], *fresh[:begin]] if view.workers > 1 else fresh
        return [*early, *again] or ([] if self._attempts else last[:1])

    def _drop_lost(self) -> None:
        """Throw away what was claimed and may be another worker's by now."""
        lost = [attempt for attempt in self._attempts.values() if not self._store.holds(attempt.clip.number)]
        if not lost:
            return
        self._progress.note(f"{len(lost)} clips are left to other workers: the coordinator has not answered in time")
        self._player.drop([attempt.source for attempt in lost])
        for attempt in lost:
            self._forget(attempt)
        if self._models:
            self._player.play({}, {})

    def _forget(self, attempt: Attempt) -> None:
        attempt.discard()
        if attempt.is_published:
            self._uncertain.append(attempt)
        self._attempts.pop(attempt.source, None)

    # --- playing -----------------------------------------------------------------------------------------------------

    def _begin_read(self) -> None:
        """Play the clips that have been read."""
        ready = []
        for attempt in self._attempts.values():
            if attempt.is_ready:
                try:
                    attempt.check_read()
                    ready.append(attempt)
                except OSError as error:
                    self._on_fault(attempt, f"it cannot be read: {error.strerror}")
        if not ready:
            return
        paths = {attempt.source: attempt.clip.path for attempt in ready}
        if not self._models:
            self._models = self._player.open(paths)
            rows = self._models.items()
            self._store.agree({name: ModelFacts.of(model) for name, model in rows})
        begun = {attempt.source: attempt.begin(self._folder, self._job.recipe, self._models) for attempt in ready}
        self._player.play(paths, begun)

    def _collect(self) -> None:
        """Publish the results of clips that have ended."""
        for ended in self._player.take_ended():
            attempt = self._attempts.get(ended.source)
            if ended.is_fatal:
                raise FolderError(ended.fault or "")
            if attempt is None:
                continue
            if ended.fault is not None:
                self._on_fault(attempt, ended.fault)
            elif attempt.result is not None:
                self._publish(attempt, attempt.result)

    def _publish(self, attempt: Attempt, result: Result) -> None:
        try:
            if attempt.has_changed:
                self._on_fault(attempt, "it was written to while it was read")
                return
            result.flush()  # may take long
            if self._store.holds(attempt.clip.number):
                result.publish()
                attempt.note_published()
        except ResultError as error:
            self._on_fault(attempt, str(error))
        except OSError as error:
            self._on_fault(attempt, f"it cannot be read any more: {error.strerror}")

    def _on_fault(self, attempt: Attempt, reason: str) -> None:
        attempt.fail(printable(scrub(reason.replace(str(attempt.clip.path), attempt.clip.name))))
        attempt.discard()

    def _settle(self) -> None:
        """Record outcomes. While the store is away, it is tried again as long as the claim holds."""
        over = [attempt for attempt in self._attempts.values() if attempt.is_over]
        for attempt in over:
            try:
                self._record(attempt)
            except ClaimsLostError:
                self._forget(attempt)
            else:
                del self._attempts[attempt.source]
        if over:
            self._refresh(at_once=True)

    def _record(self, attempt: Attempt) -> None:
        number, reason = attempt.clip.number, attempt.fault
        if reason is None:
            self._store.finish(number, self._done)
        elif attempt.number >= MAX_ATTEMPTS:
            self._store.finish(number, Outcome(state="failed", reason=reason))
            self._progress.note(f"failed: {printable(attempt.clip.name)}: {reason}")
        else:
            log.info("a clip is tried again", clip=attempt.clip.name, attempt=attempt.number, reason=reason)
            self._store.retry(number)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        held = [attempt.clip.number for attempt in self._attempts.values()]
        steps: list[Callable[[], object]] = [
            self._reader.close,
            lambda: self._player.drop([*self._attempts]),
            *(attempt.discard for attempt in self._attempts.values()),
            lambda: self._store.release(held),
            self._withdraw_doubles,
            self._player.close,
            self._store.close,
            self._folder.close,
        ]
        for step in steps:
            try:
                step()
            except LookoutError as error:
                log.warning("left behind at the end", reason=str(error))

    def _withdraw_doubles(self) -> None:
        """Remove results whose clips another worker has done in another folder."""
        if not self._uncertain:
            return
        outcomes = self._store.view().outcomes
        for attempt in self._uncertain:
            outcome = outcomes.get(attempt.clip.number)
            if attempt.result and outcome and outcome.folder not in (None, self._folder.id):
                attempt.result.withdraw()
