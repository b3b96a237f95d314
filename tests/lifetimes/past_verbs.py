"""Verbs of those who look at what was recorded, and of what goes meanwhile."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import closing
from time import time_ns

import av

from daemon.errors import LookoutError
from daemon.playback.clip_plan import plan_clip
from daemon.playback.opened import OpenedStore, PlayPlace
from daemon.recording.evidence.background import Background
from daemon.recording.evidence.check import check_folder
from daemon.recording.evidence.content import EvidenceOrder
from daemon.recording.evidence.folder import write_folder
from daemon.recording.export import export
from daemon.recording.index import Index, IndexReader
from daemon.recording.retention import Retention, Rules
from daemon.recording.store import Store
from tests.lifetimes.analysis_verbs import End
from tests.lifetimes.recording_verbs import folder_of, store_of
from tests.lifetimes.rig import Rig, settle, wait_until

_numbers = itertools.count()


def wait_old(rig: Rig) -> None:
    """There is a file that is written no more: the source was removed and has come back."""
    wait_until(lambda: any(row.written for row in store_of(rig).figures.accounts), "it is recorded")
    end = source_goes(rig, hold=False)
    end()
    settle(rig.edit(lambda _: [*rig.base.sources]))
    with closing(Store.open(folder_of(rig), makes=False)) as store, closing(IndexReader(store)) as index:
        wait_until(lambda: any(row.reason for row in index.files("rec")), "a file is over")


def source_goes(rig: Rig, hold: bool) -> End:  # noqa: ARG001
    future = rig.edit(lambda rows: [row for row in rows if row.id != "rec"])
    return lambda: settle(future)


def oldest_goes(rig: Rig, hold: bool) -> End:  # noqa: ARG001
    """All that is not being written: a limit says so."""
    rules = Rules(max_bytes=0, continuous_ns=1, events_ns=1)
    with closing(Store.open(folder_of(rig), makes=False)) as store, closing(Index(store)) as index:
        Retention(store, index, rules).run(0, ages=False)
    return lambda: None


def is_played(rig: Rig, hold: bool) -> End:  # noqa: ARG001
    """A file and a clip are opened, and read to their end later."""
    opened = OpenedStore(PlayPlace("main", folder_of(rig)))
    files = [opened.open(facts) for facts in opened.index.files("rec") if facts.reason][:3]
    clip = plan_clip("rec", 0, time_ns(), opened)
    opened.index.close()
    opened.store.close()
    sizes = [file.size for file in files]

    def end() -> None:
        for file, size in zip(files, sizes):
            with closing(file):
                assert len(file.read(0, size)) == size
        if clip is not None:
            with closing(clip):
                for part in clip.parts:
                    assert len(part.file.read(part.offset, part.size)) == part.size

    return end


def is_exported(rig: Rig, hold: bool) -> End:  # noqa: ARG001
    """As a clip and as evidence: each is whole, or there was nothing any more."""
    out = rig.folder / f"export-{next(_numbers)}.mp4"
    order = EvidenceOrder("rec", 0, time_ns(), time_ns(), "somebody", Background())
    problems: list[BaseException] = []

    def work() -> None:
        try:
            with closing(Store.open(folder_of(rig), makes=False)) as store, closing(IndexReader(store)) as index:
                found = export(store, index, "rec", 0, time_ns(), out)
            with av.open(str(out)) as video:
                assert sum(1 for packet in video.demux(video=0) if packet.size) == found.packets
            with closing(Store.open(folder_of(rig), makes=False)) as store, closing(IndexReader(store)) as index:
                assert write_folder(store, index, order, out.with_suffix("")).faults == []
            assert check_folder(out.with_suffix("")).findings == []
        except BaseException as error:  # noqa: BLE001 - told by `end`
            problems.append(error)

    thread = threading.Thread(target=work, name="exporter", daemon=True)
    thread.start()

    def end() -> None:
        thread.join(60)
        assert not thread.is_alive()
        assert all(isinstance(row, LookoutError) and "nothing is recorded" in str(row) for row in problems), problems

    return end


PAST_VERBS: dict[str, Callable[[Rig, bool], End]] = {
    "source goes": source_goes,
    "oldest goes": oldest_goes,
    "played": is_played,
    "exported": is_exported,
}
