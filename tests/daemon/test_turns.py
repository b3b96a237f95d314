"""Decoders of a host open one after the other, with pauses for those who run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from time import monotonic

import numpy as np
import pytest

from daemon.monitoring.pace import PaceSetter
from daemon.pipeline.ledger import ROW, Rows
from daemon.system.turns import HostLateness, Pace, Turns
from tests.support.daemon import ROOT
from tests.support.driver import built
from tests.support.told import written

# Opens decoders as a capture process does, once it is told to.
_OPENER = """
import sys, av
from daemon.sources.nvdec.session import Engines
engines, packet = Engines(0), av.Packet(b"p" * 100)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[1])):
    session = engines.session("h264", low_latency=True, surfaces=2)
    session.decode(packet.buffer_ptr, packet.buffer_size, None)
"""
_HOLDER = """
import sys, time
from pathlib import Path
from daemon.system.turns import Turns
with Turns(Path(sys.argv[1])).taken() as has_turn:
    print(has_turn, flush=True)
    time.sleep(600)
"""


@contextmanager
def holding(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the turn."""
    command = [sys.executable, "-c", _HOLDER, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            assert process.stdout.readline() == "True\n"
            yield process
        finally:
            process.kill()


@pytest.mark.needs("g++", "nvcuvid")
def test_no_more_decoders_are_opened_at_once_than_there_are_turns(tmp_path: Path) -> None:
    """Four processes open them; the driver's stand-in notes how many are being opened at once."""
    openings = tmp_path / "openings"
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(built(tmp_path, "cuda", "nvcuvid")),
        "LOOKOUT_HOST_FOLDER": str(tmp_path),
        "LOOKOUT_TEST_OPENINGS": str(openings),
    }
    command, pipe = [sys.executable, "-c", _OPENER, "4"], subprocess.PIPE
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True)
            )
            for _ in range(4)
        ]
        for process in running:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
        for process in running:
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in running:
            process.communicate(timeout=60)
    assert [process.returncode for process in running] == [0] * 4
    counts = [int(line) for line in openings.read_text().split()]
    assert len(counts) == 16
    assert max(counts) <= Pace().abreast


def test_a_process_that_dies_gives_its_turn_up(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        with Turns(tmp_path, Pace(abreast=1)).taken() as has_turn:
            assert has_turn


def test_a_lock_that_somebody_removes_is_made_anew(tmp_path: Path) -> None:
    """As systemd does with the files of a service that ends."""
    one, other = Turns(tmp_path, Pace(abreast=1)), Turns(tmp_path, Pace(abreast=1, patience_s=0.2))
    with one.taken():
        pass
    (tmp_path / "lookout-decoders-0.lock").unlink()
    with one.taken() as has_turn:
        assert has_turn
        with other.taken() as also:
            assert not also


def test_a_process_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    """Those who have waited in vain for it once do not wait again."""
    turns = Turns(tmp_path, Pace(abreast=1, patience_s=0.2))
    with written(tmp_path) as lines, holding(tmp_path):
        for _ in range(3):
            with turns.taken() as has_turn:
                assert not has_turn
        assert [row["reason"] for row in lines()] == ["another process of this host does not get on"]


def test_a_thread_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    turns, begun, ended = Turns(tmp_path, Pace(abreast=1, patience_s=0.2)), threading.Event(), threading.Event()

    def hang() -> None:
        with turns.taken():
            begun.set()
            ended.wait(60)

    thread = threading.Thread(target=hang)
    thread.start()
    assert begun.wait(60)
    with turns.taken() as has_turn:
        assert not has_turn
    ended.set()
    thread.join(60)


def test_who_waits_behind_others_waits_as_long_as_they_get_on(tmp_path: Path) -> None:
    """Ten turns of another take longer together than the patience."""
    pace = Pace(abreast=1, patience_s=0.5)
    one, other = Turns(tmp_path, pace), Turns(tmp_path, pace)
    has_begun, pause = threading.Event(), threading.Event()

    def take_ten() -> None:
        for _ in range(10):
            with one.taken():
                has_begun.set()
                pause.wait(0.1)

    thread = threading.Thread(target=take_ten)
    thread.start()
    assert has_begun.wait(60)
    for _ in range(3):
        with other.taken() as has_turn:
            assert has_turn
    thread.join(60)


@pytest.mark.parametrize("kind", ["no folder", "a link", "a pipe"])
def test_without_the_file_it_goes_on_and_says_so_once(kind: str, tmp_path: Path) -> None:
    folder, file = tmp_path, tmp_path / "lookout-decoders-0.lock"
    if kind == "no folder":
        folder = tmp_path / "none"
    elif kind == "a link":  # to a file of somebody's
        (tmp_path / "of somebody").write_text("text")
        file.symlink_to(tmp_path / "of somebody")
    else:
        os.mkfifo(file)
    turns = Turns(folder)
    with written(tmp_path) as lines:
        for _ in range(2):
            with turns.taken() as has_turn:
                assert not has_turn
        (line,) = lines()
    assert str(folder) in line["reason"]
    if kind == "a link":
        assert (tmp_path / "of somebody").read_text() == "text"


def test_time_is_left_between_turns_while_somebody_is_late(tmp_path: Path) -> None:
    """As a part of the turn before: a daemon that runs has its deadlines in it."""
    pace, length = Pace(late_gap=3.0), 0.02
    HostLateness(tmp_path).tell()
    one, other, times = Turns(tmp_path, pace), Turns(tmp_path, pace), []
    for turns in (one, other, one):
        with turns.taken():
            times.append(monotonic())
            threading.Event().wait(length)
    least = length * (1 + pace.late_gap)
    assert all(after - before >= least for before, after in pairwise(times))


def test_what_was_said_of_lateness_is_forgotten(tmp_path: Path) -> None:
    lateness = HostLateness(tmp_path)
    assert not lateness.is_told
    lateness.tell()
    assert lateness.is_told
    (tmp_path / "lookout-decoders.late").write_bytes(bytes(8))  # at the start of the host
    assert not lateness.is_told
    HostLateness(tmp_path / "none").tell()  # nobody hears it, and nothing fails


def rows(source: int, ms: float, count: int = 200) -> Rows:
    found = np.zeros(count, ROW)
    found["source"], found["total"] = source, ms * 1e6
    return found


def test_a_daemon_says_that_it_is_later_than_usual() -> None:
    told: list[None] = []
    setter = PaceSetter(lambda: told.append(None))
    for _ in range(30):
        setter(rows(0, 20.0))
    assert not told
    setter(rows(0, 30.0))
    assert not told, "half as late again is usual"
    setter(rows(0, 60.0))
    assert len(told) == 1
    setter(rows(0, 20.0))
    assert len(told) == 1


def test_a_source_that_has_just_connected_does_not_count() -> None:
    told: list[None] = []
    setter = PaceSetter(lambda: told.append(None))
    for _ in range(30):
        setter(rows(0, 20.0))
    for _ in range(5):
        setter(np.concatenate([rows(0, 20.0), rows(1, 5_000.0)]))
    assert not told
