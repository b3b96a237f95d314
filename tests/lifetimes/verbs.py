"""The verbs of a daemon: each can be brought to its critical moment and held there, or just started.

A verb is a function that begins it and returns what ends it: that lets go of what was held, and waits until it is done.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import zmq

from daemon.config.sources import SourceConfig, SyntheticConfig
from tests.lifetimes.analysis_verbs import ANALYSIS_VERBS, End, held_or_done, reload
from tests.lifetimes.gate import Gate
from tests.lifetimes.live_viewer import LiveViewer
from tests.lifetimes.rig import Rig, settle

Verb = Callable[[Rig, bool], End]
"""Arguments: the daemon, and whether to bring it to its critical moment and hold it there."""

_models = itertools.count(1)
ENDING = ("stop", "SIGTERM", "rules die")
"""Verbs after which the daemon ends."""


def start(rig: Rig, hold: bool) -> End:
    """Held while lanes warm up. A running daemon is started again."""
    if rig.app.health.is_ready or not hold:
        rig.app.start()
        return lambda: None
    rig.opening.close()
    rig.start()
    rig.opening.wait_for_one()

    def end() -> None:
        rig.opening.open()
        rig.wait_ready()

    return end


def stop(rig: Rig, hold: bool) -> End:
    """Held by a lane that is blocked in the detector."""
    if hold:
        rig.detecting.close()
        if rig.app.health.is_ready:
            rig.detecting.wait_for_one()
    thread = threading.Thread(target=rig.app.stop, name="stopper", daemon=True)
    thread.start()

    def end() -> None:
        rig.detecting.open()
        thread.join(60)
        assert not thread.is_alive(), "stop does not return"

    return end


def sigterm(rig: Rig, hold: bool) -> End:
    if hold:
        rig.detecting.close()
        if rig.app.health.is_ready:
            rig.detecting.wait_for_one()
    os.kill(os.getpid(), signal.SIGTERM)
    return rig.detecting.open


def sighup(rig: Rig, hold: bool) -> End:
    """The file has the running configuration."""
    rig.file = rig.app.changes.config
    return reload(rig, hold)


def add(rig: Rig, hold: bool) -> End:
    """Held while the source is made."""
    guest = SyntheticConfig(id="guest", fps=50, width=16, height=16, objects=1)
    return _change(rig, rig.making if hold else None, lambda rows: [*_without(rows, "guest"), guest])


def change(rig: Rig, hold: bool) -> End:
    """Held in the library of the source that must end."""
    return _change(
        rig,
        rig.library if hold else None,
        lambda rows: _with(rows, "lib", max_fps=40.0 + next(_models)),
        waits_for="lib",
    )


def disable(rig: Rig, hold: bool) -> End:
    return _change(rig, rig.library if hold else None, lambda rows: _with(rows, "lib", enabled=False), waits_for="lib")


def enable(rig: Rig, hold: bool) -> End:
    return _change(rig, rig.making if hold else None, lambda rows: _with(rows, "spare", enabled=True))


def remove(rig: Rig, hold: bool) -> End:
    return _change(rig, rig.library if hold else None, lambda rows: _without(rows, "lib"), waits_for="lib")


def model_swap(rig: Rig, hold: bool) -> End:
    """Held while the model is opened."""
    if hold:
        rig.model.close()
    future = rig.swap(f"model-{next(_models)}")
    if hold and not future.done():
        held_or_done(rig.model, future)

    def end() -> None:
        rig.model.open()
        settle(future)

    return end


def worker_dies(rig: Rig, hold: bool) -> End:  # noqa: ARG001
    """Between its death and the start of the next."""
    if (pid := rig.worker) is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return lambda: None


def worker_hangs(rig: Rig, hold: bool) -> End:  # noqa: ARG001
    pid = rig.worker
    if pid is None:
        return lambda: None
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)

    def end() -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    return end


def library_hangs(rig: Rig, hold: bool) -> End:
    """Of a source in this process, and of one in a capture process."""
    file = rig.folder / "HANG-cam"
    file.touch()
    rig.library.close()
    if hold and any(capture.id == "lib" and capture.state == "up" for capture in rig.app.sources.captures):
        rig.library.wait_for_one()

    def end() -> None:
        file.unlink(missing_ok=True)
        rig.library.open()

    return end


def nvml_hangs(rig: Rig, hold: bool) -> End:
    rig.probe.close()
    if hold and rig.app.health.is_ready:
        rig.probe.wait_for_one()
    return rig.probe.open


def disk_full(rig: Rig, hold: bool) -> End:  # noqa: ARG001
    """The file of frames cannot be written, and then can be again."""
    if rig.frames.is_symlink() or not rig.frames.exists():
        return lambda: None
    kept, full = rig.frames.with_suffix(".kept"), rig.frames.with_suffix(".full")
    kept.hardlink_to(rig.frames)
    full.symlink_to("/dev/full")
    full.replace(rig.frames)  # at no moment is there no file: the daemon would begin one

    def end() -> None:
        kept.replace(rig.frames)

    return end


def subscriber_stalls(rig: Rig, hold: bool) -> End:  # noqa: ARG001
    """A subscriber with room for a few messages that never reads."""
    context = zmq.Context()
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.RCVHWM, 1)
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    socket.connect(rig.app.endpoint)

    def end() -> None:
        socket.close(linger=0)
        context.term()

    return end


def watch(rig: Rig, hold: bool) -> End:
    """Somebody watches live video; held once packets come, if there are any."""
    viewer = LiveViewer(rig.app.endpoint, ("lib", "cam"))
    if hold and rig.app.health.is_ready:
        viewer.wait_for_one(lambda: any(row.state == "up" for row in rig.app.sources.captures if row.id != "drawn"))
    return viewer.close


VERBS: dict[str, Verb] = {
    "start": start,
    "stop": stop,
    "SIGHUP": sighup,
    "SIGTERM": sigterm,
    "add": add,
    "change": change,
    "disable": disable,
    "enable": enable,
    "remove": remove,
    "model swap": model_swap,
    "worker dies": worker_dies,
    "worker hangs": worker_hangs,
    "library hangs": library_hangs,
    "NVML hangs": nvml_hangs,
    "disk full": disk_full,
    "subscriber stalls": subscriber_stalls,
    "watch": watch,
    **ANALYSIS_VERBS,
}


def put_back(rig: Rig) -> None:
    """The sources as before all verbs."""
    settle(rig.edit(lambda _: [*rig.base.sources]))


def _change(
    rig: Rig, gate: Gate | None, edit: Callable[[list[SourceConfig]], list[SourceConfig]], waits_for: str | None = None
) -> End:
    """A change of sources that is held at a gate.

    Args:
        waits_for: the source whose library is held; there is nothing to hold where it does not run.
    """
    runs = waits_for is None or any(row.id == waits_for and row.state == "up" for row in rig.app.sources.captures)
    if gate:
        gate.close()
        if waits_for and runs:
            gate.wait_for_one()
    future = rig.edit(edit)
    if gate and not waits_for:
        held_or_done(gate, future)

    def end() -> None:
        if gate:
            gate.open()
        settle(future)

    return end


def _with(rows: list[SourceConfig], id: str, **changes: Any) -> list[SourceConfig]:
    return [msgspec.structs.replace(row, **changes) if row.id == id else row for row in rows]


def _without(rows: list[SourceConfig], id: str) -> list[SourceConfig]:
    return [row for row in rows if row.id != id]
