"""The death of a capture process, as its source and admission see it; on a manual clock."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from daemon.capture.processes.main import WorkerConfig
from daemon.capture.processes.remote import RemoteCapture
from daemon.capture.processes.worker import CaptureProcess
from daemon.capture.sinks import DaemonSinks
from daemon.config.root import LogConfig
from daemon.config.sources import ReconnectConfig
from daemon.control.admission import Admission
from daemon.pipeline.board_rules import BoardRules
from daemon.pipeline.drop_causes import CAUSES
from daemon.pipeline.frame_board import FrameBoard
from daemon.pipeline.ledger import Ledger
from daemon.sources.decode import NoHardwareDecoder
from tests.lifetimes.cameras import camera, make
from tests.lifetimes.parts import Announcements
from tests.lifetimes.rig import wait_until
from tests.support.clock import ManualClock
from tests.support.runtime import runtime_of


class Unasked:
    """Nobody asks anything of the capture."""

    def remove(self, capture: RemoteCapture) -> None: ...
    def retry(self, capture: RemoteCapture) -> None: ...
    def abandon(self, capture: RemoteCapture) -> None: ...


class End:
    """The daemon's end of one capture process, which reads `cam` losslessly; the test acts as the lanes."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.ledger, self.said = ManualClock(), Ledger(["cam"]), Announcements()
        self.board = FrameBoard(["cam"], self.ledger, self.clock, BoardRules(depth=2, max_age_ns=10**9))
        self.capture = RemoteCapture(camera("cam"), Unasked(), plays_once=False)
        config = WorkerConfig(
            make_source=partial(make, folder=folder),
            backend=NoHardwareDecoder("none"),
            live=False,
            depth=2,
            slots=8,
            reconnect=ReconnectConfig(),
            has_admission=False,
            stall_after_s=60,
            settle_s=1,
            log=LogConfig(),
        )
        sinks = DaemonSinks(self.board, self.ledger, self.said, Admission(), lambda _: None)
        self.worker = CaptureProcess(0, [self.capture], config, sinks, runtime_of(self.clock), on_gpu=False)

    def turn_until(self, done: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            self.worker.receive()
            self.worker.run_once()
            return done()

        wait_until(look, what)

    def die(self) -> None:
        assert self.worker.pid
        os.kill(self.worker.pid, signal.SIGKILL)
        self.turn_until(lambda: not self.worker.has_process, "its end is seen")

    @property
    def captured(self) -> int:
        return self.ledger.counts()["cam"].captured

    def look_at_all(self) -> None:
        """Take frames, as lanes do."""
        while (batch := self.board.take_batch(1, 0)).frames:
            assert self.board.claim(batch)
            self.board.release(batch)


@contextmanager
def one_process(folder: Path) -> Iterator[End]:
    end = End(folder)
    end.worker.start()
    try:
        yield end
    finally:
        end.worker.abandon()
        end.worker.stop()
        end.look_at_all()
        end.turn_until(lambda: end.worker.done, "nothing is left of it")


def test_where_no_frame_may_be_lost_the_next_process_waits_for_the_last_ones_frames(tmp_path: Path) -> None:
    """A new process may send a full queue: the board must have room for it."""
    with one_process(tmp_path) as end:
        end.turn_until(lambda: end.captured > 1, "frames come")
        end.die()
        end.clock.advance(3600)
        end.worker.run_once()
        assert not end.worker.has_process
        end.look_at_all()
        end.worker.run_once()
        assert end.worker.has_process
        before = end.captured
        end.turn_until(lambda: end.captured > before, "its frames come")
        totals = end.ledger.totals("cam")
        assert [getattr(totals, cause) for cause in CAUSES] == [0] * len(CAUSES)


def test_a_source_that_is_removed_as_its_process_dies_ends_after_its_last_message(tmp_path: Path) -> None:
    """No other process is started for it."""
    with one_process(tmp_path) as end:
        end.turn_until(lambda: end.captured > 1, "frames come")
        end.worker.remove(end.capture)
        end.die()
        end.clock.advance(3600)
        end.worker.run_once()
        assert not end.capture.ended
        end.look_at_all()
        end.worker.run_once()
        assert end.capture.ended
        assert end.said.states[-1] == "ended"
        assert not end.worker.has_process
