"""One clip's messages become a result that is the same in every run."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping

import msgspec
from msgspec import UNSET

from daemon.batch.records import Footer, Header, ModelFooter
from daemon.config.models import SINGLE
from daemon.pipeline.box_record import IMPOSSIBLE
from daemon.pipeline.drop_causes import CAUSES
from daemon.pipeline.ledger import Counts
from daemon.sources.packets import CUT_SHORT
from lookout.messages import Detections, Dropped, Event, Latency, Total, VideoFormat

RUN = "batch"  # stands for `instance` and `session`, which differ from run to run
PLAYED = "played to its end"
_NO_TIMES, _NONE_DROPPED = Latency(0, 0, 0, 0, 0, 0), Dropped()
_REPRODUCIBLE = ("decode_error", "corrupt", "rate_limit")  # drops that the next run has as well
_MOST_AHEAD = 10_000  # frames, more than a board holds: another model loses its own, so there will be no result
_Key = tuple[str | None, str, str, str | None, str | None]


class IncompleteError(Exception):
    """There is no result; the text is the reason."""


class ResultWriter:
    """Writes the lines of one clip.

    `captured_at`, `at` and `confirmed_at` count from the beginning of the recording's own timeline. An event stands
    before the frame that confirms it: in the stream its place depends on how frames met in a batch. Of several models a
    frame has a line of each, by name: one that is ahead waits for the others, which are behind by what a board holds.

    Args:
        write: writes bytes.
    """

    def __init__(self, header: Header, write: Callable[[bytes], object]) -> None:
        self._source, self._write = header.clip, write
        self._encode = msgspec.json.Encoder().encode
        self._frames: dict[str, deque[Detections]] = {name: deque() for name in header.models or (SINGLE,)}
        self._waiting: list[Event] = []
        self._totals: Counter[_Key] = Counter()
        self._analysed: Counter[str] = Counter()  # by model
        self._boxes: Counter[str] = Counter()
        self._lines = self._events = self._corrupt = 0
        self._last_pts = 0
        self._line(header)

    @property
    def frames(self) -> int:
        """Frames that are written, of each model."""
        return self._lines

    @property
    def played_ns(self) -> int:
        """Time of the last of them, on the recording's own timeline."""
        return self._last_pts

    def detections(self, message: Detections) -> None:
        """The next frame of a model."""
        name = SINGLE if message.model.id is UNSET else message.model.id
        self._frames[name].append(message)
        while all(self._frames.values()) or len(self._frames[name]) > _MOST_AHEAD:
            self._write_next()

    def _write_next(self) -> None:
        """Write the first of the frames that wait."""
        _, name = min((frames[0].seq, name) for name, frames in self._frames.items() if frames)
        message = self._frames[name].popleft()
        pts = message.pts or 0
        self._last_pts = pts
        self._write_events(message.seq)
        self._line(
            msgspec.structs.replace(
                message,
                instance=RUN,
                source=self._source,
                session=RUN,
                index=self._lines,
                captured_at=pts,
                latency=_NO_TIMES,
                dropped=_NONE_DROPPED,
            )
        )
        self._lines += 1
        self._analysed[name] += 1
        self._boxes[name] += len(message.detections)
        self._corrupt += message.corrupt is True and name == next(iter(self._frames))

    def event(self, message: Event) -> None:
        """An event; the frame that confirms it may have come already, or follows."""
        self._waiting.append(message)

    def finish(self, reason: str | None, format: VideoFormat | None, counts: Mapping[str, Counts]) -> None:
        """Write the rest, and the last line.

        Args:
            reason: why the recording ended, None at its end.
            counts: the accounts of the source, by model. All have the same captured and dropped frames: no model has a
                part in those drops that the next run has as well.

        Raises:
            IncompleteError: there is no result.
        """
        if reason is not None and CUT_SHORT not in reason:
            raise IncompleteError(reason)
        while any(self._frames.values()):
            self._write_next()
        for name, own in counts.items():
            self._check(f"model {name}: " if len(counts) > 1 else "", own, self._analysed[name])
        if format is None:
            raise IncompleteError("its format is unknown")
        first = next(iter(counts.values()))
        self._write_events(None)
        damaged = first.dropped.decode_error or first.dropped.corrupt or self._corrupt
        ended = PLAYED if reason is None else f"{CUT_SHORT}{reason.partition(CUT_SHORT)[2]}"
        models = {
            name: ModelFooter(analysed=own.published, boxes=self._boxes[name], bad_boxes=own.bad_boxes)
            for name, own in sorted(counts.items())
        }
        self._line(
            Footer(
                complete=reason is None and not damaged,
                ended=ended,
                format=msgspec.structs.replace(format, decoder_reason=None),
                frames=first.captured,
                analysed=first.published,
                dropped=first.dropped,
                boxes=self._boxes.total(),
                bad_boxes=sum(own.bad_boxes for own in counts.values()),
                events=self._events,
                totals=[Total(*key, count) for key, count in self._totals.items()],  # type: ignore[arg-type]
                corrupt=self._corrupt,
                passed_over=dict(sorted(first.passed_over.items())),
                models={} if SINGLE in models else models,
            )
        )

    def _check(self, model: str, counts: Counts, lines: int) -> None:
        """
        Args:
            model: named before a reason.

        Raises:
            IncompleteError: frames are missing, or all boxes are impossible.
        """
        lost = [cause for cause in CAUSES if cause not in _REPRODUCIBLE and getattr(counts.dropped, cause)]
        if lost:
            total = sum(getattr(counts.dropped, cause) for cause in lost)
            raise IncompleteError(f"{model}{total} of {counts.captured} frames were not analysed: {', '.join(lost)}")
        if counts.published != lines:
            raise IncompleteError(f"{model}{counts.published} frames were published and {lines} were received")
        if counts.bad_boxes and not counts.has_boxes:
            raise IncompleteError(f"{model}all {counts.bad_boxes} boxes are {IMPOSSIBLE}")

    def _write_events(self, seq: int | None) -> None:
        """Write the events that a frame confirms, or all that are left."""
        kept = []
        for event in self._waiting:
            if seq is not None and event.confirmed_seq > seq:
                kept.append(event)
            else:
                self._write_event(event)
        self._waiting = kept

    def _write_event(self, event: Event) -> None:
        self._events += 1
        self._totals[event.rule, event.kind, event.phase, event.direction, event.label] += 1
        self._line(
            msgspec.structs.replace(
                event,
                id=f"{RUN}-{self._events}",
                number=self._events,
                instance=RUN,
                source=self._source,
                session=RUN,
                index=self._events - 1,
                at=event.pts or 0,
                confirmed_at=self._last_pts,
                snapshot=None,
            )
        )

    def _line(self, record: msgspec.Struct) -> None:
        self._write(self._encode(record) + b"\n")
