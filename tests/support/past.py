"""Stores with recordings of chosen times, written without a recorder: files, gaps, and boxes beside the video."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from daemon.pipeline.frames import FrameInfo
from daemon.pipeline.outbox import Served
from daemon.recording.causes import Cause
from daemon.recording.index import Index
from daemon.recording.recording_file import RecordingFile
from daemon.recording.records import FileFacts, FileHead, Gap, Sample
from daemon.recording.store import Store
from daemon.recording.tracks.records import Handed, TracksHead
from daemon.recording.tracks.stored_frames import frames_of
from daemon.recording.tracks.track_file import TrackFile
from lookout.messages import FrameClock, Model
from tests.support.recorded import Clip, groups, later

Box = tuple[float, float, float, float]
_SERVED = Served(Model("none", "0" * 12, "none", "none"), ("thing",))


@dataclass(frozen=True)
class Shown:
    """A picture that is in a store.

    Attributes:
        at: UTC ns, when its time begins.
        pts: ns of the session.
        number: within its clip.
    """

    at: int
    session: str
    pts: int
    number: int


class Past:
    """One store, written piece by piece.

    Attributes:
        shown: pictures by source, in their order.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.store = Store.init(folder)
        self.index = Index(self.store)
        self.shown: dict[str, list[Shown]] = {}
        self._last: dict[str, FileHead] = {}
        self._facts: dict[str, FileFacts] = {}
        self._begun: dict[str, int] = {}  # UTC ns, of the session
        self._open: list[RecordingFile] = []

    def write(
        self,
        source: str,
        clip: Clip,
        begin: int,
        *,
        cause: Cause | None = "source_down",
        detail: str | None = None,
        claimed: bool = False,
        boxes: Callable[[int], Sequence[Box]] | None = None,
        is_open: bool = False,
    ) -> RecordingFile:
        """A clip as one file.

        Args:
            begin: UTC ns.
            cause, detail: of the gap before it; no cause for a step that is none.
            boxes: of the picture of a number, px.
            is_open: it goes on being written.
        """
        before, facts = self._last.get(source), self._facts.get(source)
        stream = clip.stream
        is_same = before is not None and before.stream.session == stream.session
        base = before.base_dts if before is not None and is_same else clip.samples[0].dts
        start = base if before is None or facts is None or not is_same else base + begin - self._begun[source]
        samples = later(clip.samples, start - clip.samples[0].dts)
        if not is_same:
            self._begun[source] = begin
        covered = facts.end if facts else begin
        head = FileHead(
            id=secrets.token_hex(8), source=source, store=self.store.uuid, instance="past", stream=stream,
            base_dts=base, first_pts=samples[0].pts, first_dts=samples[0].dts, begin=begin if cause else covered,
            begin_boot=begin, boot_id="b007", number=0, begins_with_key=True, since=facts.since if facts else begin,
            covered_until=covered, gaps=[Gap(covered, begin, cause, detail)] if cause and covered < begin else [],
            previous=facts.id if facts else None, previous_chain=facts.chain if facts else None,
        )  # fmt: skip
        file = RecordingFile.create(self.store, head, samples[0].data)
        number = 0
        for group in groups(samples):
            self._append(file, group, number, begin - samples[0].dts, claimed=claimed)
            number += len(group)
        self._keep(source, file, is_open=is_open)
        self._note(source, samples, begin, boxes)
        return file

    def go_on(self, source: str, file: RecordingFile, clip: Clip, end: int) -> None:
        """More of a file that is open.

        Args:
            end: UTC ns, of what it has.
        """
        last = file.fragments[-1]
        samples = later(clip.samples, last.pts + last.duration - clip.samples[0].pts)
        for group in groups(samples):
            self._append(file, group, 0, end - samples[0].dts, claimed=False)
        self.index.add_file(file.facts)
        self._note(source, samples, end, None)

    def at(self, source: str, ns: int) -> Shown:
        """The picture that is shown at a moment."""
        return max((one for one in self.shown[source] if one.at <= ns), key=lambda one: one.at)

    def close(self) -> None:
        for file in self._open:
            file.detach()
        self.index.close()
        self.store.close()

    def _append(self, file: RecordingFile, group: Sequence[Sample], number: int, shift: int, *, claimed: bool) -> None:
        begin, end = group[0].dts + shift, group[-1].dts + group[-1].duration + shift
        file.append(group, number=number, begin=begin, begin_boot=begin, end=end, claimed=claimed)

    def _keep(self, source: str, file: RecordingFile, *, is_open: bool) -> None:
        self._last[source] = file.head
        if is_open:
            self._open.append(file)
            self._facts[source] = file.facts
        else:
            self._facts[source] = file.close("minute", file.fragments[-1].end)
            assert file.trouble is None
        self.index.add_file(self._facts[source], file.head.gaps)

    def _note(
        self, source: str, samples: Sequence[Sample], begin: int, boxes: Callable[[int], Sequence[Box]] | None
    ) -> None:
        head, facts = self._last[source], self._facts[source]
        in_order = sorted(samples, key=lambda sample: sample.pts)
        found = [
            Shown(begin + sample.pts - in_order[0].pts, head.stream.session, sample.pts, number)
            for number, sample in enumerate(in_order)
        ]
        self.shown.setdefault(source, []).extend(found)
        if boxes is not None:
            self._track(source, facts, head, [(one, boxes(one.number)) for one in found])

    def _track(self, source: str, facts: FileFacts, head: FileHead, rows: list[tuple[Shown, Sequence[Box]]]) -> None:
        stream = head.stream
        file = TrackFile.open(
            self.store, facts.path,
            TracksHead(video=head.id, source=source, instance="past", same_stream=True, tracking=None),
        )  # fmt: skip
        assert file is not None
        infos = [
            FrameInfo(source, one.session, place, one.pts, one.at, one.at, FrameClock("arrival"), 0, stream.width,
                      stream.height)
            for place, (one, _) in enumerate(rows)
        ]  # fmt: skip
        counts = [len(boxes) for _, boxes in rows]
        total = sum(counts)
        xyxy = np.array([box for _, boxes in rows for box in boxes], np.float32).reshape(-1, 4)
        ids = np.array([place + 1 for count in counts for place in range(count)], np.int64)
        handed = Handed(
            1, infos, [*range(len(rows))], counts, [True] * len(rows), bytearray(xyxy.tobytes()),
            bytearray(np.full(total, 0.9, np.float32).tobytes()), bytearray(np.zeros(total, np.int32).tobytes()),
            bytearray(ids.tobytes()), bytearray(np.zeros(total, np.int32).tobytes()), bytearray(xyxy.tobytes()), {}, {},
        )  # fmt: skip
        with closing(file):
            (frames,) = frames_of([handed])
            for place in range(0, len(frames), 60):
                file.append(frames[place : place + 60], {1: _SERVED})
            file.finish()
