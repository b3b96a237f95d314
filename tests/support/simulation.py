"""The daemon's queue of frames in one thread, on a clock that only the detector and the sources' rate move.

Source, board, lane, publisher and ledger are the daemon's own. Nothing else runs, so the result does not depend on the
machine: which frames are superseded, and how long each frame takes.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from daemon.bench.harness import Window, probing
from daemon.bench.latency import Rowset
from daemon.bench.usage import Meter
from daemon.capture.recordings import RecordingCapture
from daemon.capture.sinks import CaptureSinks
from daemon.config.publisher import PublisherConfig
from daemon.config.sources import ReconnectConfig, SyntheticConfig
from daemon.control.admission import Admission
from daemon.pipeline.board_rules import BoardRules
from daemon.pipeline.frame_board import FrameBoard
from daemon.pipeline.lane import LaneThread, Pipeline
from daemon.pipeline.ledger import Ledger
from daemon.pipeline.outbox import Outbox
from daemon.publish.build import BoxEncoder, MessageBuilder
from daemon.publish.masks import MaskEncoder
from daemon.publish.ownership_fence import NoFence
from daemon.publish.publisher import Publisher
from daemon.publish.zeromq import ZeroMqSink
from daemon.sources.port import Source
from daemon.sources.synthetic import SyntheticSource
from daemon.system.stop_token import StopToken
from detectors.fake.detector import FakeDetector
from detectors.port import Options
from tests.support.clock import ManualClock
from tests.support.runtime import runtime_of

_OUTBOX = 1000


class Simulation:
    """Synthetic sources and one lane.

    Args:
        service: seconds of detection for each batch, by its number.
        max_batch: frames of a batch.
        depth: frames that wait for each source, lossless; None for live, where newer frames replace older ones.
        make: makes a source.

    Attributes:
        served: monotonic ns of the start and end of each batch.
        reasons: status reason of a source that is up, by its id.
    """

    def __init__(
        self,
        sources: Sequence[SyntheticConfig],
        service: Callable[[int], float],
        *,
        max_batch: int = 8,
        depth: int | None = None,
        admission: Admission | None = None,
        make: Callable[[SyntheticConfig], Source] = SyntheticSource,
    ) -> None:
        self.clock = ManualClock()
        self.ids = tuple(config.id for config in sources)
        self.ledger = Ledger(self.ids)
        self.served: list[tuple[int, int]] = []
        self.reasons: dict[str, str | None] = {}
        self._service, self._asleep_until = service, 0
        self._begin, self._before = self.clock.monotonic_ns(), self.ledger.counts()
        outbox = Outbox(_OUTBOX, self.ledger, lossless=depth is not None)
        endpoint = PublisherConfig(endpoint="tcp://127.0.0.1:*")
        runtime = runtime_of(self.clock)
        boxes, sockets = BoxEncoder(MaskEncoder("off", 1, self.ledger)), [ZeroMqSink(endpoint, self.clock)]
        build = MessageBuilder("run", self.ledger, self.clock)
        self._publisher = Publisher(sockets, outbox, self.ledger, boxes, build, NoFence(), None, runtime)
        board = FrameBoard(self.ids, self.ledger, self.clock, BoardRules(depth=depth, max_age_ns=10**9))
        # The start time does not matter; `service` moves the clock.
        detector = FakeDetector(Options(Path("none"), max_batch=max_batch), 1.0, self._serve)
        pipeline = Pipeline(board, outbox, self.ledger, runtime)
        self._lane = LaneThread("0", detector, (), pipeline, StopToken(), lambda: None)
        self._detecting = detector.lane()
        # Time of the next step, a number that breaks ties, and the capture.
        self._waiting: list[tuple[int, int, RecordingCapture]] = []
        self._woken: set[int] = set()
        sinks = CaptureSinks(board, self.ledger, self._announce, admission or Admission())
        for number, config in enumerate(sources):
            capture = RecordingCapture(config, make(config), sinks, self.clock, ReconnectConfig())
            board.listen(config.id, lambda number=number: self._woken.add(number))  # type: ignore[misc]
            self._waiting.append((0, number, capture))

    def run(self, seconds: float) -> None:
        """Run for a time; the last batch is finished."""
        end = self.clock.monotonic_ns() + round(seconds * 1e9)
        while self.clock.monotonic_ns() < end:
            self._go_on()
            if any(count.in_flight for count in self.ledger.counts().values()):
                self._lane.run_once(self._detecting)
                self._publisher.run_once(0.0)
            else:
                self._advance_to(min(end, max(self._waiting[0][0], self._asleep_until)))

    def stall(self, seconds: float) -> None:
        """Stop all sources from now on, as if their thread were blocked; time passes as usual."""
        self._asleep_until = self.clock.monotonic_ns() + round(seconds * 1e9)

    def mark(self) -> None:
        """Start of the window."""
        self._begin, self._before = self.clock.monotonic_ns(), self.ledger.counts()

    def window(self) -> Window:
        """The window, from `mark` or the beginning until now."""
        end = self.clock.monotonic_ns()
        with probing() as probe:
            usage = Meter(lambda: [os.getpid()], probe).usage(1)
        return Window(self._begin, end, self._before, self.ledger.counts(), usage, [], {})

    def rowset(self, window: Window, *, paced: bool) -> Rowset:
        """The rows of benchmarks; call it once."""
        return Rowset(self.ledger.drain(), window, self.ids, paced=paced)

    def close(self) -> None:
        self._detecting.close()
        self._publisher.stop(0.0)

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self, _: float) -> None:
        """Run the sources that are due during a detection."""
        began = self.clock.monotonic_ns()
        end = began + round(self._service(len(self.served)) * 1e9)
        self._go_on()
        while (due := max(self._waiting[0][0], self._asleep_until)) <= end:
            self._advance_to(due)
            self._go_on()
        self._advance_to(end)
        self.served.append((began, self.clock.monotonic_ns()))

    def _go_on(self) -> None:
        """Run each source that is due or has been woken."""
        now = self.clock.monotonic_ns()
        if now < self._asleep_until:
            return
        while True:
            if self._woken:
                self._waiting = [(0 if row[1] in self._woken else row[0], *row[1:]) for row in self._waiting]
                self._woken.clear()
                heapq.heapify(self._waiting)
            due, number, capture = self._waiting[0]
            if due > now:
                return
            following = capture.step()
            assert following is not None, "a source has come to its end"
            heapq.heapreplace(self._waiting, (following, number, capture))

    def _advance_to(self, moment: int) -> None:
        self.clock.advance((moment - self.clock.monotonic_ns()) / 1e9)

    def _announce(
        self,
        source: str,
        session: str | None,
        state: str,
        reason: str | None = None,
        retry_in_s: float | None = None,
        format: object = None,
    ) -> None:
        if state == "up":
            self.reasons[source] = reason
