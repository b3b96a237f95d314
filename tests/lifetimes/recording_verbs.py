"""Verbs of recording: its store, its process, its index, and how a source is recorded."""

from __future__ import annotations

import itertools
import os
import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import msgspec

from daemon.config.sources import RecordMode, SourceRecord
from daemon.recording.process.store_process import StoreProcess
from tests.lifetimes.analysis_verbs import End, reload
from tests.lifetimes.rig import Rig, wait_until
from tests.support.events import crossing

_numbers = itertools.count()
_modes = itertools.cycle(get_args(RecordMode))


def _nothing() -> None:
    """To let go of."""


def store_of(rig: Rig) -> StoreProcess:
    recording = rig.app.parts.recording
    assert recording is not None
    (store,) = recording._stores.values()
    return store


def folder_of(rig: Rig) -> Path:
    (store,) = rig.app.changes.config.record.stores.values()
    return store.path


def _to_recorder(rig: Rig, do: Callable[[int], Any]) -> list[int]:
    """Do something to the process of the store, if it is there; returns its pid."""
    pids = store_of(rig).pids
    for pid in pids:
        with suppress(ProcessLookupError):
            do(pid)
    return pids


def store_fails(rig: Rig, hold: bool) -> End:
    """Nothing can be written; held until that is known."""
    store = store_of(rig)
    pids = _to_recorder(rig, lambda pid: resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY)))
    if hold and pids and store.figures.cause is None:
        wait_until(lambda: store.figures.cause is not None, "the store fails")

    def end() -> None:
        limits = resource.RLIM_INFINITY, resource.RLIM_INFINITY
        for pid in pids:
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)

    return end


def store_hangs(rig: Rig, hold: bool) -> End:  # noqa: ARG001
    pids = _to_recorder(rig, lambda pid: os.kill(pid, signal.SIGSTOP))

    def end() -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    return end


def store_away(rig: Rig, hold: bool) -> End:  # noqa: ARG001
    """Another store is there."""
    marker = folder_of(rig) / "lookout-store.json"
    aside = marker.with_suffix(".aside")
    with suppress(FileNotFoundError):
        marker.rename(aside)

    def end() -> None:
        with suppress(FileNotFoundError):
            aside.rename(marker)

    return end


def recorder_dies(rig: Rig, hold: bool) -> End:  # noqa: ARG001
    _to_recorder(rig, lambda pid: os.kill(pid, signal.SIGKILL))
    return _nothing


def index_lost(rig: Rig, hold: bool) -> End:  # noqa: ARG001
    for path in folder_of(rig).glob("index.sqlite*"):
        path.unlink(missing_ok=True)
    return _nothing


def mode_changes(rig: Rig, hold: bool) -> End:
    """By a reload."""
    now, mode = rig.app.changes.config, next(_modes)
    sources = [
        msgspec.structs.replace(row, record=SourceRecord(mode=mode)) if row.id == "rec" else row for row in now.sources
    ]
    rig.file = msgspec.structs.replace(now, sources=sources)
    return reload(rig, hold)


def event_comes(rig: Rig, hold: bool) -> End:  # noqa: ARG001
    rig.app.events.on_event(crossing(next(_numbers), "rec"))
    return _nothing


RECORDING_VERBS: dict[str, Callable[[Rig, bool], End]] = {
    "store fails": store_fails,
    "store hangs": store_hangs,
    "store away": store_away,
    "recorder dies": recorder_dies,
    "index lost": index_lost,
    "mode changes": mode_changes,
    "event comes": event_comes,
}
