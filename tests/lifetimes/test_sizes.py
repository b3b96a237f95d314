"""Input sizes of sources while the daemon runs: a new one opens the model anew, and no source connects again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from daemon.config.sources import SyntheticConfig
from daemon.daemon import Daemon
from daemon.pipeline.board_rules import BoardRules
from daemon.pipeline.frame_board import FrameBoard
from daemon.pipeline.frames import Frame, FrameInfo
from daemon.pipeline.lane import LaneThread, Pipeline
from daemon.pipeline.ledger import Ledger
from daemon.pipeline.outbox import Outbox
from daemon.system.stop_token import StopToken
from detectors.detections import Detections
from detectors.fake.detector import FakeDetector, FakeLane
from detectors.port import DetectorError, HostImage, Image, Options, PreparedImage, Size, StageTimes
from lookout.messages import FrameClock
from tests.lifetimes.rig import wait_until
from tests.lifetimes.running import only, running, wait_up
from tests.support.clock import ManualClock
from tests.support.runtime import runtime_of

_NARROW = SyntheticConfig(id="narrow", width=64, height=36, fps=100)
_WIDE = SyntheticConfig(id="wide", width=128, height=72, fps=100)
_SIZE = (1280, 736)


class Bench:
    """Opens detectors whose lanes note what they see.

    Attributes:
        opened: options of each detector.
        seen: the widths of the pictures of each batch, and its input size.
        refuses: no model is opened any more.
    """

    def __init__(self) -> None:
        self.opened: list[Options] = []
        self.seen: list[tuple[frozenset[int], Size | None]] = []
        self.refuses = False
        self.lock = threading.Lock()

    def open(self, _: object, options: Options) -> FakeDetector:
        if self.refuses:
            raise DetectorError("an input_size of 1280x736 is not possible")
        self.opened.append(options)
        return _Detector(options, self)

    def shown(self, width: int, size: Size | None) -> bool:
        """Whether the latest batch with pictures of this width had an input of this size."""
        with self.lock:
            sizes = [row[1] for row in self.seen if width in row[0]]
        return bool(sizes) and sizes[-1] == size


class _Detector(FakeDetector):
    def __init__(self, options: Options, bench: Bench) -> None:
        super().__init__(options)
        self._bench = bench

    def lane(self) -> FakeLane:
        return _Lane(self._bench, None)


class _Lane(FakeLane):
    def __init__(self, bench: Bench, size: Size | None) -> None:
        super().__init__(0.0, 0.0, lambda _: None)
        self._bench, self._size = bench, size

    def at(self, size: Size) -> FakeLane:
        return _Lane(self._bench, size)

    def detect(self, images: Sequence[Image | PreparedImage]) -> tuple[list[Detections], StageTimes]:
        widths = frozenset(image.width for image in images if not isinstance(image, PreparedImage))
        with self._bench.lock:
            self._bench.seen.append((widths, self._size))
        return super().detect(images)


def _wait_shown(bench: Bench, width: int, size: Size | None) -> None:
    wait_until(lambda: bench.shown(width, size), f"{width} seen at {size}", lambda: bench.seen[-3:])


def _captures(app: Daemon) -> list[tuple[str, object]]:
    return [(capture.id, capture) for capture in app.sources.captures]


def test_a_size_comes_and_goes_without_a_new_connection(tmp_path: Path) -> None:
    bench = Bench()
    with running(tmp_path, _NARROW, _WIDE, open_detector=bench.open) as app:
        wait_up(app, "narrow", "wide")
        _wait_shown(bench, 128, None)
        before = _captures(app)
        only(app, _NARROW, replace(_WIDE, input_size=[*_SIZE]))
        _wait_shown(bench, 128, _SIZE)
        _wait_shown(bench, 64, None)
        only(app, _NARROW, replace(_WIDE, input_size=None))  # is open, and stays so
        _wait_shown(bench, 128, None)
        assert _captures(app) == before
    assert [options.further_sizes for options in bench.opened] == [(), (_SIZE,)]
    assert all(len(widths) == 1 or size is None for widths, size in bench.seen)


def test_a_size_that_is_open_serves_other_sources(tmp_path: Path) -> None:
    bench = Bench()
    sized = replace(_WIDE, input_size=[*_SIZE])
    with running(tmp_path, _NARROW, sized, open_detector=bench.open) as app:
        _wait_shown(bench, 128, _SIZE)
        only(app, replace(_NARROW, input_size=[*_SIZE]), sized)
        _wait_shown(bench, 64, _SIZE)
    assert len(bench.opened) == 1


def test_a_batch_of_a_size_that_the_model_does_not_have_takes_its_own() -> None:
    """For a moment while models change the board may have a size of the other model. The lane goes on."""
    ledger, clock, failures, bench = Ledger(["cam"]), ManualClock(), list[str](), Bench()
    board = FrameBoard(["cam"], ledger, clock, BoardRules(depth=8, max_age_ns=10**9))
    board.set_sizes({"cam": _SIZE})
    outbox = Outbox(8, ledger, lossless=True)
    pipeline = Pipeline(board, outbox, ledger, runtime_of(clock, failures.append))
    lane = LaneThread("0", _Detector(Options(Path("none")), bench), (), pipeline, StopToken(), lambda: None)
    ledger.captured("cam")
    info = FrameInfo("cam", "s", 0, None, 0, 0, FrameClock("file"), 0, 8, 8)
    assert board.put(Frame(info, HostImage(np.zeros((8, 8, 3), np.uint8))))
    board.close()
    lane.go.set()
    lane.run()
    assert bench.seen == [(frozenset({8}), None)]
    assert len(outbox.get(8, 0)) == 1
    assert failures == []


def test_a_size_that_cannot_be_opened_changes_nothing(tmp_path: Path) -> None:
    bench = Bench()
    with running(tmp_path, _NARROW, _WIDE, open_detector=bench.open) as app:
        wait_up(app, "wide")
        bench.refuses = True
        with pytest.raises(DetectorError, match="an input_size of 1280x736 is not possible"):
            only(app, _NARROW, replace(_WIDE, input_size=[*_SIZE]))
        bench.seen.clear()
        _wait_shown(bench, 128, None)
        assert app.changes.config.active == [_NARROW, _WIDE]
