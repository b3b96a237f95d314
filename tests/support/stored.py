"""A store as those see it who read it beside the daemon: what is in it, and whether every second is explained."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout, suppress
from io import BytesIO, StringIO, TextIOWrapper
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import av

from daemon.cli import invoke
from daemon.recording.causes import CAUSES
from daemon.recording.errors import StoreError
from daemon.recording.index import IndexReader
from daemon.recording.records import FileFacts, Gap
from daemon.recording.scan import scan
from daemon.recording.store import Store
from daemon.recording.timeline import Span
from daemon.recording.tracks.records import SeenFrame
from daemon.recording.tracks.track_records import read_tracks
from tests.support.recorded import SECOND, pictures_of, played


class Packet(NamedTuple):
    """A packet in a file.

    Attributes:
        pts: ns on the timeline of its session.
        units: digests of the NAL units, without those that servers repeat.
    """

    pts: int
    units: tuple[str, ...]


class Stored:
    """One store.

    Args:
        folder: of it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def timeline(self, source: str, begin: int = 0, end: int = 1 << 62) -> list[Span | Gap]:
        """From the first recording on, UTC ns."""
        with self._opened() as (_, index):
            newest = index.newest(source)
            first = min((row.since for row in index.files(source)), default=newest.since if newest else 0)
            return index.timeline(source, max(begin, first), end)

    def files(self, source: str) -> list[FileFacts]:
        with self._opened() as (_, index):
            return index.files(source)

    def gaps(self, source: str) -> list[Gap]:
        return [row for row in self.timeline(source) if isinstance(row, Gap)]

    def recorded_s(self, source: str) -> float:
        """Seconds of video; 0 before there is an index."""
        with suppress(StoreError):
            return sum(row.end - row.begin for row in self.timeline(source) if isinstance(row, Span)) / SECOND
        return 0.0

    def packets(self, source: str) -> dict[str, list[Packet]]:
        """All of a source, by the session in which they came, in the order of the files."""
        found: dict[str, list[Packet]] = {}
        with self._opened() as (store, index):
            for facts in index.files(source):
                head = scan(store, facts.path).head
                times = [row[0] for row in played(store.path / facts.path)]
                rows = [Packet(pts + head.first_pts - times[0], pictures)
                        for pts, pictures in zip(times, pictures_of(store.path / facts.path))]  # fmt: skip
                found.setdefault(head.session, []).extend(rows)
        return found

    def seen(self, source: str) -> dict[tuple[str, int], SeenFrame]:
        """The analysed pictures that lie beside the files of a source, by session and pts."""
        found: dict[tuple[str, int], SeenFrame] = {}
        with self._opened() as (store, index):
            for facts in index.files(source):
                with suppress(FileNotFoundError):  # nothing was seen in so short a one
                    for one in read_tracks(store, facts):
                        if isinstance(one, SeenFrame) and one.frame.pts is not None:  # the first of a camera has none
                            assert (one.frame.session, one.frame.pts) not in found
                            found[one.frame.session, one.frame.pts] = one
        return found

    def check_whole(self, source: str, begin: int | None = None, end: int | None = None) -> list[Span | Gap]:
        """The timeline of a source: spans and gaps follow each other without a hole or an overlap, and each gap has a
        cause.

        Args:
            begin, end: UTC ns that the timeline must reach.
        """
        rows = self.timeline(source)
        assert rows, f"{source}: nothing is known of it"
        for row, following in pairwise(rows):
            assert row.begin < row.end == following.begin, (source, row, following)
        assert all(row.cause in CAUSES for row in rows if isinstance(row, Gap))
        assert begin is None or rows[0].begin <= begin, (source, rows[0], begin)
        assert end is None or rows[-1].end >= end, (source, rows[-1], end)
        return rows

    def check_plays(self, path: str) -> int:
        """Decode a file as it is now; returns its pictures."""
        with av.open(str(self.folder / path)) as container:
            return sum(1 for _ in container.decode(video=0))

    def run(self, *words: str) -> str:
        """Run `lookout recordings`; returns what it prints."""
        out, errors = TextIOWrapper(BytesIO()), StringIO()
        with redirect_stdout(out), redirect_stderr(errors):
            code = invoke(["recordings", *words, "--store", str(self.folder)])
        out.seek(0)
        text = out.read()
        assert code == 0, text + errors.getvalue()
        return text

    def told(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))

    def check_sound(self) -> None:
        """Every byte is as it was written."""
        assert self.told("verify")["problems"] == []

    @contextmanager
    def _opened(self) -> Iterator[tuple[Store, IndexReader]]:
        with closing(Store.open(self.folder, makes=False)) as store, closing(IndexReader(store)) as index:
            yield store, index
