"""One clip's messages become a result that is the same in every run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from daemon.batch.records import Footer, Header
from daemon.pipeline.box_record import IMPOSSIBLE
from daemon.pipeline.drop_causes import CAUSES
from daemon.pipeline.ledger import Counts
from daemon.sources.packets import CUT_SHORT
from lookoutd.messages import Detections, Dropped, Event, Latency, Model, Total, VideoFormat

RUN = "batch"  # stands for `instance` and `session`, which differ from run to run
PLAYED = "played to its end"
_NO_TIMES, _NONE_DROPPED = Latency(0, 0, 0, 0, 0, 0), Dropped()
_REPRODUCIBLE = ("decode_error", "corrupt", "rate_limit")  # drops that the next run has as well
_Key = tuple[str | None, str, str, str | None, str | None]


class IncompleteError(Exception):
    """There is no result; the text is the reason."""


class ResultWriter:
    """Writes the lines of one clip.

    `captured_at`, `at` and `confirmed_at` count from the beginning of the recording's own timeline. An event stands
    before the frame that confirms it: in the stream its place depends on how frames met in a batch.

    Args:
        write: writes bytes.

    Attributes:
        model: of the messages so far.
    """

    def __init__(self, header: Header, write: Callable[[bytes], object]) -> None:
        self._source, self._write = header.clip, write
        self._encode = msgspec.json.Encoder().encode
        self._waiting: list[Event] = []
        self._totals: Counter[_Key] = Counter()
        self._lines = self._boxes = self._events = self._corrupt = 0
        self._last_pts = 0
        self.model: Model = header.model
        self._line(header)

    def detections(self, message: Detections) -> None:
        """The next frame."""
        self.model = message.model
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
        self._boxes += len(message.detections)
        self._corrupt += message.corrupt is True

    def event(self, message: Event) -> None:
        """An event; the frame that confirms it may have come already, or follows."""
        self._waiting.append(message)

    def finish(self, reason: str | None, format: VideoFormat | None, counts: Counts) -> None:
        """Write the rest, and the last line.

        Args:
            reason: why the recording ended, None at its end.

        Raises:
            IncompleteError: there is no result.
        """
        if reason is not None and CUT_SHORT not in reason:
            raise IncompleteError(reason)
        lost = [cause for cause in CAUSES if cause not in _REPRODUCIBLE and getattr(counts.dropped, cause)]
        if lost:
            total = sum(getattr(counts.dropped, cause) for cause in lost)
            raise IncompleteError(f"{total} of {counts.captured} frames were not analysed: {', '.join(lost)}")
        if format is None or counts.published != self._lines:
            raise IncompleteError(f"{counts.published} frames were published and {self._lines} were received")
        if counts.bad_boxes and not counts.has_boxes:
            raise IncompleteError(f"all {counts.bad_boxes} boxes are {IMPOSSIBLE}")
        self._write_events(None)
        damaged = counts.dropped.decode_error or counts.dropped.corrupt or self._corrupt
        ended = PLAYED if reason is None else f"{CUT_SHORT}{reason.partition(CUT_SHORT)[2]}"
        self._line(
            Footer(
                complete=reason is None and not damaged,
                ended=ended,
                format=msgspec.structs.replace(format, decoder_reason=None),
                frames=counts.captured,
                analysed=counts.published,
                dropped=counts.dropped,
                boxes=self._boxes,
                bad_boxes=counts.bad_boxes,
                events=self._events,
                totals=[Total(*key, count) for key, count in self._totals.items()],  # type: ignore[arg-type]
                corrupt=self._corrupt,
                passed_over=dict(sorted(counts.passed_over.items())),
            )
        )

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
