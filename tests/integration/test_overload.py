"""More frames than the detector can do, and subscribers that do not read.

How old frames get, and who gets how many: tests/daemon/test_queueing.py, on a clock that is moved by hand.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from daemon.build import build
from daemon.clock import SystemClock
from daemon.config.model import ModelConfig
from daemon.config.publisher import PublisherConfig
from daemon.config.root import Config, MonitorConfig
from daemon.config.sources import SyntheticConfig
from daemon.daemon import Daemon
from daemon.pipeline.ledger import Rows
from daemon.seams import Seams
from detectors.fake.detector import FakeDetector
from lookout.client import Subscriber
from lookout.messages import Detections, Metrics
from tests.support.daemon import PATIENCE_S, Lookout, has_seen, is_state, receive_until, wait_until


def test_every_frame_is_accounted_for_where_there_are_too_many() -> None:
    """Eight sources at 30 frames/s on a detector that does 80: newer frames replace older ones, all have their turn,
    and nothing is lost silently."""
    config = Config(
        model=ModelConfig(path=Path("none"), max_batch=8),
        sources=[SyntheticConfig(id=f"cam-{number}", seed=number, width=160, height=90) for number in range(8)],
        publisher=PublisherConfig(endpoint="tcp://127.0.0.1:*"),
        monitor=MonitorConfig(interval_s=1),
    )
    app = build(config, Seams(open_detector=lambda _, options: FakeDetector(options, 0.1)))
    app.start()
    try:
        wait_until(lambda: _superseded(app) > 200, "frames are superseded")
        wait_until(lambda: all(count.published > 10 for count in app.ledger.counts().values()), "all have their turn")
    finally:
        assert app.stop() == 0
    counts = app.ledger.counts()
    assert all(count.in_flight == 0 for count in counts.values())
    assert {count.dropped.outbox_full for count in counts.values()} == {0}


def _superseded(app: Daemon) -> int:
    return sum(count.dropped.superseded for count in app.ledger.counts().values())


class LeapingClock(SystemClock):
    """A clock that can be put forward."""

    leap_ns = 0

    def monotonic_ns(self) -> int:
        return super().monotonic_ns() + self.leap_ns


def test_a_daemon_of_no_fleet_says_that_it_is_too_much() -> None:
    """In its health, after half a minute of it."""
    clock = LeapingClock()
    config = Config(
        model=ModelConfig(path=Path("none"), max_batch=8),
        sources=[SyntheticConfig(id=f"cam-{number}", seed=number, width=160, height=90) for number in range(8)],
        publisher=PublisherConfig(endpoint="tcp://127.0.0.1:*"),
        monitor=MonitorConfig(interval_s=0.2, stall_after_s=600, stuck_after_s=600),
    )
    app = build(config, Seams(open_detector=lambda _, options: FakeDetector(options, 0.1), clock=clock))
    app.start()
    try:
        wait_until(lambda: _superseded(app) > 200, "frames are superseded")
        assert app.health.warnings() == []
        clock.leap_ns = 31_000_000_000
        wait_until(lambda: any("does not keep up" in said for said in app.health.warnings()), "it is said")
        (trouble,) = app.health.troubles()
        assert (trouble.what, "does not keep up" in trouble.reason) == ("load", True)
    finally:
        assert app.stop() == 0


def test_each_drop_has_its_row() -> None:
    """The rows, which become frames.jsonl, hold each captured frame once."""
    config = Config(
        model=ModelConfig(path=Path("none"), max_batch=2),
        sources=[SyntheticConfig(id="a", frames=60, fps=60, max_fps=15), SyntheticConfig(id="b", frames=60, fps=60)],
        publisher=PublisherConfig(endpoint="tcp://127.0.0.1:*"),
    )
    rows: list[Rows] = []
    app = build(config, Seams(open_detector=lambda _, options: FakeDetector(options, 0.06), rows=[rows.append]))
    assert app.run() == 0
    found = np.concatenate(rows)
    for index, source in enumerate(app.ledger.accounts):
        assert sorted(found["seq"][found["source"] == index]) == list(range(60)), source


@pytest.mark.slow
def test_a_subscriber_that_stops_reading_costs_nothing(tmp_path: Path) -> None:
    """While thousands of messages are not read the daemon's memory stays, who reads gets every message, nothing is
    dropped for it, and the loss is in its own report.

    Over a local socket, because a TCP connection's buffers, megabytes on both sides, may hold all of these messages.
    """
    ids = [f"cam-{number}" for number in range(4)]
    config: dict[str, object] = {
        "model": {"path": "none", "backend": "fake"},
        "sources": [{"id": id, "type": "synthetic", "fps": 100, "width": 64, "height": 64} for id in ids],
        "publisher": {"high_water_mark": 1000, "endpoint": f"ipc://{tmp_path}/lookout.sock"},
        "monitor": {"interval_s": 1},
    }
    with (
        Lookout(tmp_path, config) as lookout,
        Subscriber(lookout.endpoint, kinds=("detections", "metrics"), high_water_mark=100_000) as keen,
        Subscriber(lookout.endpoint, high_water_mark=50) as lazy,
    ):
        assert lazy.receive(PATIENCE_S) is not None
        # Until all that may wait for it does: 1,000 messages here, 50 there, and a socket's buffer between them.
        receive_until(keen, has_seen(400, *ids))
        before = _next(keen)
        receive_until(keen, has_seen(1250, *ids), 3 * PATIENCE_S)
        after = _next(keen)
        assert keen.lost == {}
        while not lazy.lost:
            assert lazy.receive(PATIENCE_S) is not None
        assert sum(lazy.lost.values()) > 1000
    assert after.process.rss_bytes <= before.process.rss_bytes * 1.01 + (1 << 20)
    assert all(source.dropped.outbox_full == 0 for source in after.sources.values())


def _next(subscriber: Subscriber) -> Metrics:
    """The next figures."""
    *_, last = receive_until(subscriber, lambda message: isinstance(message, Metrics))
    assert isinstance(last, Metrics)
    return last


@pytest.mark.parametrize("signals", [1, 2])
def test_a_stop_is_clean(tmp_path: Path, signals: int) -> None:
    """One signal ends with 0 and a word of each source; with a second the process goes at once."""
    config: dict[str, object] = {"sources": [{"id": "cam", "type": "synthetic"}]}
    with Lookout(tmp_path, config) as lookout, lookout.subscribe("status", "detections") as subscriber:
        receive_until(subscriber, lambda message: isinstance(message, Detections))
        if signals == 2:
            lookout.process.terminate()
        code = lookout.stop()
        assert code in ((0,) if signals == 1 else (0, 143))
        if signals == 1:
            receive_until(subscriber, is_state("cam", "ended"))
            assert "left behind" not in lookout.log()
