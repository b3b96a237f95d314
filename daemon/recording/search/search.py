"""Ask the past: events that rules would have given, and what they could not have seen.

The frames of a time are replayed from the last moment before it at which no track was there, within an hour. Nothing of
before the time is told. A track that is older than that, or of which boxes are missing, has its events marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from daemon.analytics.event_message import Identity, message_of
from daemon.recording.index_reader import IndexReader
from daemon.recording.records import Gap
from daemon.recording.search.answers import Answer, End, PastEvent, Progress
from daemon.recording.search.asked import Asked, SearchError
from daemon.recording.search.pictures import Pictures
from daemon.recording.search.replay import Found, Replay
from daemon.recording.search.sight import Sight
from daemon.recording.search.stored import Opened, Problem, StoredTracks
from daemon.recording.store import Store
from daemon.recording.tracks.records import SeenFrame, StateChange
from lookout.messages import Event as Message

_OF_MESSAGES = tuple(name for name in PastEvent.__struct_fields__ if name in Message.__struct_fields__)


def search(store: Store, index: IndexReader, asked: Asked, now: int) -> Iterator[Answer]:
    """Answers as they are found; the last is an `End`.

    Args:
        now: UTC ns.

    Raises:
        SearchError: the boxes cannot answer the question.
        LookoutError: the store has nothing of the source, or cannot be read.
    """
    stored = StoredTracks(store, index, asked)
    rows = index.timeline(asked.source, asked.begin, asked.end)
    if rows and isinstance(last := rows[-1], Gap):  # it goes on since it was last told of
        rows[-1] = msgspec.structs.replace(last, end=max(last.end, asked.end))
    gaps = [row for row in rows if isinstance(row, Gap)]
    return _Search(stored, Pictures(store, stored.files), gaps, asked, now).answers()


class _Search:
    """One question, from the first file to the last."""

    def __init__(self, stored: StoredTracks, pictures: Pictures, gaps: list[Gap], asked: Asked, now: int) -> None:
        self._stored, self._pictures, self._asked, self._now = stored, pictures, asked, now
        self._sight = Sight(asked.begin, asked.end, gaps)
        self._replay = Replay(asked.source, asked.rules)
        self._labels = frozenset(label for rule in asked.rules for label in rule.labels or ())
        self._same_stream = True
        self._last: SeenFrame | None = None  # of the model that tracks
        self._is_open = False  # the newest file is being written
        self._events = 0

    def answers(self) -> Iterator[Answer]:
        for item in self._stored.items():
            if isinstance(item, Opened):
                yield from self._open(item)
            elif isinstance(item, StateChange):
                yield from self._told(self._replay.change(item))
            elif isinstance(item, Problem):
                yield from self._missing(item)
            elif item.frame.captured_at < self._asked.end:
                yield from self._frame(item)
            else:  # a state before it may still have ended what was there
                self._is_open = False  # more was written than was asked for
                break
        else:
            yield from self._end_of_source()
        yield from self._finish()

    def _open(self, opened: Opened) -> Iterator[Answer]:
        if self._replay.open(opened.head):
            self._last = None
        self._same_stream, self._is_open = opened.head.same_stream, opened.facts.reason is None
        if opened.facts.begin > self._asked.begin:
            yield Progress(opened.facts.begin)

    def _frame(self, seen: SeenFrame) -> Iterator[Answer]:
        last, at = self._last, seen.frame.captured_at
        if seen.tracks is None:
            # Of several models one tracks, and the frames of the others say nothing.
            if last is None or last.frame.account == seen.frame.account:
                yield from self._sight.missed(at, "no_tracking", ends_at_frame=True)
                self._replay.lose()
            return
        lost = dropped = 0
        if last is not None and last.frame.account == seen.frame.account:
            lost, dropped = seen.index - last.index - 1, seen.frame.seq - last.frame.seq - 1
        elif last is not None:
            self._replay.lose()  # another model tracks now
        self._last = seen
        if self._labels and at >= self._asked.begin:
            self._check_labels(seen)
        if lost > 0:
            self._replay.lose()
            yield from self._sight.missed(at, "boxes_lost", frames=lost, ends_at_frame=True)
        elif dropped > 0:
            yield from self._sight.missed(at, "dropped", frames=dropped, ends_at_frame=True)
        elif not self._sight.sees(at):
            yield from self._sight.saw(at)
        if found := self._replay.observe(seen):
            yield from self._told(found)

    def _check_labels(self, seen: SeenFrame) -> None:
        """
        Raises:
            SearchError: the model does not have one of them.
        """
        if unknown := sorted(self._labels.difference(seen.served.labels)):
            known = ", ".join(seen.served.labels)
            raise SearchError(
                f"rule.labels: the model that found the boxes has no label {unknown[0]!r}; it has {known}"
            )

    def _missing(self, problem: Problem) -> Iterator[Answer]:
        yield from self._sight.missed(problem.facts.end, problem.cause, problem.detail)

    def _end_of_source(self) -> Iterator[Answer]:
        """A source that is down after its last frame has not come back until now."""
        if self._last is not None:
            info = self._last.frame
            yield from self._told(self._replay.finish(info.captured_ns + self._now - info.captured_at))

    def _finish(self) -> Iterator[Answer]:
        asked = self._asked
        yield from self._sight.finish("not_yet" if self._is_open else "no_frames")
        unseen_s, whole_s = self._sight.unseen_ns / 1e9, (asked.end - asked.begin) / 1e9
        yield End(events=self._events, seen_s=round(whole_s - unseen_s, 3), unseen_s=round(unseen_s, 3))

    def _told(self, found: Iterable[Found]) -> Iterator[PastEvent]:
        for one in found:
            event = one.event
            if not self._asked.begin <= event.confirmed.captured_at < self._asked.end:
                continue
            self._events += 1
            message = message_of(event, 0, "", Identity(one.instance), None, None)
            own = {name: getattr(message, name) for name in _OF_MESSAGES}
            picture = self._pictures.of(event.began, event.confirmed, same_stream=self._same_stream)
            yield PastEvent(**own, partial=one.partial, picture=picture)
