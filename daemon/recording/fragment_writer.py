"""Samples become a fragment: its own box with the hash chain, `moof`, `mdat`. Nothing is encoded."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from daemon.recording.boxes import (
    Buffer,
    FragmentBox,
    fragment_box,
    head_box,
    movie_fragment,
    read_fragment,
)
from daemon.recording.init_segment import InitSegment
from daemon.recording.records import FileHead, Sample
from daemon.recording.samples import Sampling


class Written(NamedTuple):
    """A fragment.

    Attributes:
        box: what it says of itself.
        parts: its bytes.
    """

    box: FragmentBox
    parts: list[Buffer]


class FragmentWriter:
    """The fragments of one file.

    Attributes:
        beginning: bytes before the first fragment.
        chain: of the last fragment that was accepted.
    """

    def __init__(self, head: FileHead, init: InitSegment) -> None:
        self._init = init
        (self._base,) = init.ticks([head.base_dts])
        self._sampling = Sampling(head.stream.codec, head.stream.extradata)
        self._sequence = 1
        self.beginning = init.ftyp + head_box(head) + init.moov
        self.chain = hashlib.sha256(self.beginning).digest()

    def make(
        self, samples: Sequence[Sample], *, number: int, begin: int, begin_boot: int, end: int, claimed: bool
    ) -> Written:
        """The next fragment; `accept` follows when it is on disk.

        Raises:
            BoxError: a time does not fit.
        """
        media, sizes = self._sampling.convert([sample.data for sample in samples])
        decode_time, durations, compositions = self._times(samples)
        keys = [sample.key for sample in samples]
        beginning = movie_fragment(self._sequence, decode_time, durations, sizes, keys, compositions)
        pts = min(sample.pts for sample in samples)
        box = FragmentBox(
            claimed=claimed,
            key=samples[0].key,
            packets=len(samples),
            number=number,
            begin=begin,
            begin_boot=begin_boot,
            end=end,
            pts=pts,
            duration=max(sample.pts + sample.duration for sample in samples) - pts,
            media_bytes=len(beginning) + sum(sizes),
            before=self.chain,
            chain=b"",
        )
        told = fragment_box(box, [beginning, *media])
        made = read_fragment(told)
        assert made is not None  # noqa: S101 - for types
        return Written(made, [told, beginning, *media])

    def accept(self, written: Written) -> None:
        """The fragment is in the file."""
        self._sequence += 1
        self.chain = written.box.chain

    def _times(self, samples: Sequence[Sample]) -> tuple[int, list[int], list[int]]:
        """The first time of decoding, and of each sample its duration, and how long after decoding it is shown; ticks.

        Times of decoding never go back, those of pictures stay.
        """
        base, last = self._base, samples[-1]
        pts, dts = [sample.pts for sample in samples], [sample.dts for sample in samples]
        due = self._init.ticks([*dts, last.dts + last.duration])
        shown = due[:-1] if pts == dts else self._init.ticks(pts)
        ends = [*accumulate((max(0, time - base) for time in due), max)]
        durations = [end - begin for begin, end in pairwise(ends)]
        return ends[0], durations, [picture - base - at for picture, at in zip(shown, ends)]
