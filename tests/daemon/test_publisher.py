"""Publisher and client over real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from daemon.clock import SystemClock
from daemon.config.publisher import CurveConfig, PublisherConfig
from daemon.errors import ConfigError
from daemon.pipeline.frames import FrameInfo
from daemon.pipeline.ledger import Ledger
from daemon.pipeline.outbox import Outbox, Result, Served
from daemon.publish.build import BoxEncoder, MessageBuilder
from daemon.publish.curve_keys import new_pair
from daemon.publish.masks import MaskEncoder
from daemon.publish.ownership_fence import Fence, NoFence
from daemon.publish.publisher import Publisher
from daemon.publish.zeromq import ZeroMqSink
from detectors import detections as found
from detectors.port import StageTimes
from lookout.client import Subscriber
from lookout.messages import Detections, FrameClock, Model, RunLengths, Status, VideoFormat
from tests.support.daemon import receive_until
from tests.support.runtime import runtime_of

SERVED = Served(Model("m", "0" * 12, "fp32", "fake"), ("dog", "cat"))


class Bench:
    """A publisher for source `cam` and what feeds it."""

    def __init__(self, config: PublisherConfig, fence: Fence | None = None) -> None:
        self.ledger = Ledger(["cam", "cam1"])
        self.outbox = Outbox(100, self.ledger, lossless=False)
        self.failures: list[str] = []
        clock = SystemClock()
        runtime = runtime_of(clock, self.failures.append)
        self.sink = ZeroMqSink(config, clock)
        boxes = BoxEncoder(MaskEncoder(config.masks, config.max_masks, self.ledger))
        parts = [self.sink], self.outbox, self.ledger, boxes, MessageBuilder("run-1", self.ledger, clock)
        self.publisher = Publisher(*parts, fence or NoFence(), None, runtime)

    def result(self, seq: int, source: str = "cam") -> Result:
        self.ledger.captured(source)
        info = FrameInfo(source, "s", seq, None, SystemClock().monotonic_ns(), 1, FrameClock("arrival"), 5, 640, 480)
        boxes = found.Detections(
            np.array([[1.234, 2, 3, 4]], np.float32), np.array([0.87654], np.float32), np.array([1], np.int32)
        )
        return Result(info, boxes, info.captured_ns + 10, StageTimes(1, 2, 3), SERVED)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench(PublisherConfig(endpoint="tcp://127.0.0.1:*"))
    yield bench
    bench.publisher.stop(5)
    assert not bench.publisher.is_alive()
    assert bench.failures == []


def test_a_result_arrives_as_a_message(bench: Bench) -> None:
    bench.publisher.start()
    with Subscriber(bench.sink.endpoint, sources=["cam"]) as subscriber:
        assert bench.publisher.has_subscribers.wait(30)
        bench.outbox.put([bench.result(0, "cam1")])
        bench.outbox.put([bench.result(4)])
        message = subscriber.receive(30)
    assert isinstance(message, Detections)
    assert (message.source, message.seq, message.index) == ("cam", 4, 0)
    (detection,) = message.detections
    assert (detection.label, detection.class_id, detection.confidence) == ("cat", 1, 0.8765)
    assert detection.box == (1.23, 2.0, 3.0, 4.0)
    assert message.latency.wait == 10
    assert message.latency.total > 10


def test_masks_arrive_as_configured() -> None:
    bench = Bench(PublisherConfig(endpoint="tcp://127.0.0.1:*", encoding="msgpack", masks="rle", max_masks=1))
    masks = found.Masks(np.array([[[0x60], [0x60]]] * 2, np.uint8), 4, (8.0, 0.0), (4.0, 4.0))
    boxes = found.Detections(
        np.zeros((2, 4), np.float32), np.array([0.9, 0.8], np.float32), np.zeros(2, np.int32), masks=masks
    )
    bench.publisher.start()
    try:
        with Subscriber(bench.sink.endpoint, sources=["cam"]) as subscriber:
            assert bench.publisher.has_subscribers.wait(30)
            bench.outbox.put([msgspec.structs.replace(bench.result(0), detections=boxes)])
            message = subscriber.receive(30)
    finally:
        bench.publisher.stop(5)
    assert isinstance(message, Detections)
    strong, weak = message.detections
    assert strong.mask == RunLengths((2, 4), [2, 4, 2], (8.0, 0.0), (4.0, 4.0))
    assert weak.mask is msgspec.UNSET
    assert bench.ledger.masks_left_out == 1
    assert bench.failures == []


def test_a_reason_tells_no_password(bench: Bench) -> None:
    """Whichever library has put a URL into its words."""
    bench.publisher.start()
    with Subscriber(bench.sink.endpoint, kinds=("status",)) as subscriber:
        assert bench.publisher.has_subscribers.wait(30)
        bench.publisher.announcement("cam", None, "down", "OSError: rtsp://me:hunter2@192.0.2.1/x says no")()
        (*_, status) = receive_until(subscriber, lambda message: isinstance(message, Status))
    assert isinstance(status, Status)
    assert "hunter2" not in str(status.reason)
    assert "192.0.2.1" in str(status.reason)


def test_the_subscriber_sees_its_own_loss(bench: Bench) -> None:
    """Joining late is no loss; a gap is."""
    bench.publisher.start()
    bench.outbox.put([bench.result(0)])
    bench.outbox.flush(5)
    with Subscriber(bench.sink.endpoint) as subscriber:
        assert bench.publisher.has_subscribers.wait(30)
        bench.outbox.put([bench.result(1)])
        assert subscriber.receive(30) is not None
        assert subscriber.lost == {}
        bench.publisher._build._index[b"detections/cam/"] += 3  # as if three had been left out at the high-water mark
        bench.outbox.put([bench.result(5)])
        assert subscriber.receive(30) is not None
        assert subscriber.lost == {"detections/cam/": 3}


def test_a_result_that_breaks_the_publisher_is_counted() -> None:
    """Here a class without a label, which no lane lets through."""
    bench = Bench(PublisherConfig(endpoint="tcp://127.0.0.1:*"))
    broken = found.Detections(np.zeros((1, 4), np.float32), np.ones(1, np.float32), np.array([9], np.int32))
    bench.outbox.put([bench.result(0), msgspec.structs.replace(bench.result(1), detections=broken)])
    bench.publisher.start()
    bench.publisher.join(30)
    bench.outbox.abandon()
    assert ["index out of range" in failure for failure in bench.failures] == [True]
    counts = bench.ledger.counts_of("cam")
    assert (counts.captured, counts.published, counts.dropped.shutdown) == (2, 0, 2)


def test_who_comes_late_is_told_the_state(bench: Bench) -> None:
    bench.publisher.start()
    bench.publisher.announcement("cam", "s", "down", "unplugged", 3.0)()
    bench.outbox.flush(5)
    with Subscriber(bench.sink.endpoint, kinds=["status"]) as subscriber:
        message = subscriber.receive(30)
    assert isinstance(message, Status)
    assert (message.state, message.reason, message.retry_in_s) == ("down", "unplugged", 3.0)


def test_a_full_outbox_drops_and_counts() -> None:
    ledger = Ledger(["cam"])
    outbox = Outbox(2, ledger, lossless=False)
    bench = Bench(PublisherConfig(endpoint="tcp://127.0.0.1:*"))
    for seq in range(5):
        outbox.put([bench.result(seq)])
    assert ledger.totals("cam").outbox_full == 3
    assert len(outbox) == 2
    bench.publisher.stop(0)


def test_a_port_in_use_is_told(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="another Lookout"):
        Bench(PublisherConfig(endpoint=bench.sink.endpoint))


def test_curve_lets_in_who_knows_the_key_and_nobody_else(tmp_path: Path) -> None:
    public, secret = new_pair(tmp_path, "lookout")
    assert secret.stat().st_mode & 0o077 == 0
    curve = CurveConfig(secret_key_file=secret)
    bench = Bench(PublisherConfig(endpoint="tcp://127.0.0.1:*", curve=curve))
    bench.publisher.start()
    try:
        with (
            Subscriber(bench.sink.endpoint, server_key=public) as friend,
            Subscriber(bench.sink.endpoint) as plain,
            Subscriber(bench.sink.endpoint, server_key="0" * 40) as stranger,
        ):
            assert bench.publisher.has_subscribers.wait(30)
            bench.outbox.put([bench.result(0)])
            assert receive_until(friend, lambda message: isinstance(message, Detections))
            assert plain.receive(0.5) is None
            assert stranger.receive(0.5) is None
    finally:
        bench.publisher.stop(5)


def test_a_bad_key_is_told(tmp_path: Path) -> None:
    (tmp_path / "k").write_text("nonsense")
    with pytest.raises(ConfigError, match="lookout keys new"):
        Bench(PublisherConfig(endpoint="tcp://127.0.0.1:*", curve=CurveConfig(secret_key_file=tmp_path / "k")))
    with pytest.raises(ConfigError, match="neither"):
        Subscriber(server_key=tmp_path / "k")


def test_a_note_is_said_with_the_status_of_a_source_that_is_up(bench: Bench) -> None:
    """At once where it is up, with the next `up` where it is not, and to late subscribers. It ends with the source."""
    publisher, form = bench.publisher, VideoFormat("h264", 640, 480, 25.0, "cpu", notes=("odd",))

    def notes(subscriber: Subscriber) -> tuple[str, ...] | None:
        (*_, status) = receive_until(subscriber, lambda message: isinstance(message, Status))
        assert isinstance(status, Status)
        return None if status.format is None else status.format.notes

    publisher.start()
    with Subscriber(bench.sink.endpoint, kinds=("status",), sources=["cam"]) as subscriber:
        assert publisher.has_subscribers.wait(30)
        publisher.announcement("cam", "s", "up", format=form)()
        publisher.note("cam", "slow")
        publisher.note("cam", None)
        publisher.note("cam", "slower")
        assert [notes(subscriber) for _ in range(4)] == [("odd",), ("odd", "slow"), ("odd",), ("odd", "slower")]
        publisher.announcement("cam", None, "down", "it is away")()
        publisher.note("cam", "slow")
        publisher.announcement("cam", "t", "up", format=form)()
        assert [notes(subscriber) for _ in range(2)] == [None, ("odd", "slow")]
        with Subscriber(bench.sink.endpoint, kinds=("status",), sources=["cam"]) as late:
            assert notes(late) == ("odd", "slow")
        publisher.forget("cam")
        publisher.announcement("cam", "u", "up", format=form)()
        (*_, last) = receive_until(subscriber, lambda message: isinstance(message, Status) and message.session == "u")
        assert isinstance(last, Status)
        assert last.format == form
