"""The whole daemon in one process: failures of the detector, of labels and thresholds, and what systemd is told."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from daemon.build import build
from daemon.config.load import parse
from daemon.config.model import ModelConfig
from daemon.config.publisher import PublisherConfig
from daemon.config.root import BoardConfig, Config, MonitorConfig
from daemon.config.sources import SourceConfig, SyntheticConfig, TrackingConfig
from daemon.monitoring.health import PART_FAILED
from daemon.pipeline.stages import Defaults, filter_of
from daemon.seams import Seams
from detectors.detections import Detections as Found
from detectors.fake.detector import FakeDetector, FakeLane
from detectors.port import DetectorError, DetectorUnavailableError, Image, Options, PreparedImage, StageTimes
from lookout.client import Subscriber
from lookout.messages import Detections, Encoding, Message, Metrics, Status
from tests.support.daemon import DEMO_MODEL, PATIENCE_S, Lookout, has_seen, is_state, receive_until, wait_until


def _config(*sources: SourceConfig, audience: bool = False, **more: Any) -> Config:
    """Whether to wait for a subscriber before the first frame."""
    return Config(
        model=ModelConfig(path=Path("none"), max_batch=4),
        sources=list(sources),
        publisher=PublisherConfig(endpoint="tcp://127.0.0.1:*", wait_for_subscriber_s=20 * audience),
        **more,
    )


class BreakingDetector(FakeDetector):
    """Works for three batches, and then not even closing works, as on a GPU after an illegal address."""

    def close(self) -> None:
        raise DetectorError("illegal address")

    def lane(self) -> FakeLane:
        return BreakingLane(0.1, 0.0, lambda _: None)


class BreakingLane(FakeLane):
    left = 3

    def close(self) -> None:
        raise DetectorError("illegal address")

    def detect(self, images: Sequence[Image | PreparedImage]) -> tuple[list[Found], StageTimes]:
        self.left -= 1
        if self.left < 0:
            raise DetectorError("out of memory")
        return super().detect(images)


def test_a_detector_that_fails_ends_the_process_with_its_own_code() -> None:
    """Never a daemon that runs on and detects nothing; and the frames it failed on are counted."""
    app = build(
        _config(SyntheticConfig(id="cam", fps=100)), Seams(open_detector=lambda _, options: BreakingDetector(options))
    )
    assert app.run() == PART_FAILED
    counts = app.ledger.counts()["cam"]
    assert counts.dropped.detector_error >= 1
    assert counts.in_flight == 0


class AwayDetector(FakeDetector):
    """Its server is away from the fourth batch on, for some of them."""

    def __init__(self, options: Options, batches: float) -> None:
        super().__init__(options)
        self._batches = batches

    def lane(self) -> FakeLane:
        return AwayLane(self._batches)


class AwayLane(FakeLane):
    def __init__(self, batches: float) -> None:
        super().__init__(0.1, 0.0, lambda _: None)
        self._calls, self._batches = 0, batches

    def detect(self, images: Sequence[Image | PreparedImage]) -> tuple[list[Found], StageTimes]:
        self._calls += 1
        if 3 < self._calls <= 3 + self._batches:
            raise DetectorUnavailableError("the server is away")
        return super().detect(images)


@pytest.mark.parametrize("mode", ["live", "lossless"])
def test_a_server_that_is_away_costs_frames_only_where_they_get_old(mode: Literal["live", "lossless"]) -> None:
    pace: Literal["realtime", "fast"] = "realtime" if mode == "live" else "fast"
    source = SyntheticConfig(id="cam", fps=100, frames=60, pace=pace, width=32, height=32)
    config = _config(source, board=BoardConfig(mode=mode, depth=4))
    app = build(config, Seams(open_detector=lambda _, options: AwayDetector(options, 4)))
    assert app.run() == 0
    counts = app.ledger.counts()["cam"]
    assert counts.in_flight == 0
    assert counts.dropped.detector_unavailable >= 4 if mode == "live" else counts.published == 60


def test_a_stop_does_not_wait_for_a_server_that_is_away() -> None:
    source = SyntheticConfig(id="cam", frames=60, pace="fast", width=32, height=32)
    config = _config(source, board=BoardConfig(mode="lossless", depth=4))
    app = build(config, Seams(open_detector=lambda _, options: AwayDetector(options, float("inf"))))
    app.start()
    wait_until(lambda: app.ledger.counts()["cam"].published >= 3, "the server is away")
    app.request_stop()
    app.stop()
    counts = app.ledger.counts()["cam"]
    assert counts.in_flight == 0
    assert counts.published < 60


def test_a_lossless_run_with_several_lanes_keeps_each_source_in_order() -> None:
    sources = [SyntheticConfig(id=name, frames=100, pace="fast", width=32, height=32) for name in "abc"]
    config = _config(*sources, audience=True, lanes=3, board=BoardConfig(mode="lossless", depth=4))
    app = build(config, Seams(open_detector=lambda _, options: FakeDetector(options)))
    with Subscriber(app.endpoint) as subscriber:
        assert app.run() == 0
        seqs: dict[str, list[int]] = {"a": [], "b": [], "c": []}
        for message in receive_until(subscriber, has_seen(100, "a", "b", "c")):
            assert isinstance(message, Detections)
            seqs[message.source].append(message.seq)
    for source, seen in seqs.items():
        assert seen == list(range(100)), source
    assert all(count.published == 100 for count in app.ledger.counts().values())


def test_a_source_has_its_own_threshold_and_labels() -> None:
    """The detector runs at the lowest threshold; each source gets what it asked for."""
    low, cars = SyntheticConfig(id="low", confidence=0.1), SyntheticConfig(id="cars", labels=["car"])
    from daemon.control.plan import options_of

    assert options_of(_config(low, cars)).wanted.confidence == 0.1
    import numpy as np

    defaults = Defaults(0.25, 0.1, 2)
    found = Found(np.zeros((3, 4), np.float32), np.array([0.9, 0.5, 0.2], np.float32), np.array([1, 0, 1], np.int32))
    labels = ("person", "car")
    assert filter_of(low, labels, defaults)(found).confidence.tolist() == pytest.approx([0.9, 0.5])  # the strongest
    assert filter_of(cars, labels, defaults)(found).confidence.tolist() == pytest.approx([0.9])
    weak = Found(np.zeros((3, 4), np.float32), np.array([0.9, 0.8, 0.7], np.float32), np.array([0, 0, 1], np.int32))
    assert filter_of(cars, labels, defaults)(weak).confidence.tolist() == pytest.approx(
        [0.7]
    )  # though two are stronger


def _counts_all(message: Message) -> bool:
    """Of 40 frames."""
    return isinstance(message, Metrics) and (row := message.sources["cam"]).captured == 40 and row.in_flight == 0


def test_the_last_figures_add_up() -> None:
    """The last metrics message accounts for every frame, and says why there are no GPU figures."""
    config = _config(SyntheticConfig(id="cam", fps=50, frames=40), audience=True, monitor=MonitorConfig(interval_s=0.2))
    app = build(config, Seams(open_detector=lambda _, options: FakeDetector(options)))
    with Subscriber(app.endpoint, kinds=["metrics"]) as subscriber:
        app.run()
        found = receive_until(subscriber, _counts_all)
    messages = [message for message in found if isinstance(message, Metrics)]
    last = messages[-1].sources["cam"]
    assert (last.captured, last.in_flight) == (40, 0)
    assert last.published + last.dropped.superseded + last.dropped.stale == 40
    assert messages[-1].process.rss_bytes > 0
    assert (messages[-1].gpus is None) == (messages[-1].gpus_reason is not None)
    # A rate is told to 0.01, an interval to the millisecond.
    published = 0
    for message in messages:
        row = message.sources["cam"]
        bound = 0.01 * message.interval_s + 0.001 * message.fps + 1e-6
        assert message.fps * message.interval_s == pytest.approx(row.published - published, abs=bound)
        published = row.published
    assert published > 0


def test_systemd_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """READY, STATUS, WATCHDOG, RELOADING and STOPPING reach a real notify socket."""
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        listener.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        monkeypatch.setenv("WATCHDOG_USEC", "500000")
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
        config: dict[str, object] = {"sources": [{"id": "cam", "type": "synthetic"}], "monitor": {"interval_s": 0.5}}
        with Lookout(tmp_path, config) as lookout:
            wanted = ["READY=1", "STATUS=1 of 1 sources up", "WATCHDOG=1"]
            while wanted:
                state = listener.recv(200).decode()
                wanted = [words for words in wanted if not state.startswith(words)]
            heard: list[str] = []
            lookout.process.send_signal(signal.SIGHUP)
            while "READY=1" not in heard:
                heard.append(listener.recv(200).decode())
            assert any(state.startswith("RELOADING=1\nMONOTONIC_USEC=") for state in heard)
            assert lookout.stop() == 0
            while "STOPPING=1" not in heard:
                heard.append(listener.recv(200).decode())


def test_a_terminal_that_is_closed_ends_run(tmp_path: Path) -> None:
    """Before it is ready as well; nohup has it go on."""
    config: dict[str, object] = {"sources": [{"id": "cam", "type": "synthetic"}]}
    keyboard, terminal = os.openpty()
    with Lookout(tmp_path, dict(config), terminal=terminal) as lookout, lookout.subscribe() as subscriber:
        os.close(terminal)
        receive_until(subscriber, is_state("cam", "up"))
        os.close(keyboard)
        assert lookout.process.wait(PATIENCE_S) == 0
    with Lookout(tmp_path, dict(config)) as lookout, lookout.subscribe() as subscriber:
        receive_until(subscriber, is_state("cam", "up"))
        lookout.process.send_signal(signal.SIGHUP)
        wait_until(lambda: '"reloaded"' in lookout.log(), "the reload")
        assert lookout.stop() == 0


def test_curve_over_the_command_line(tmp_path: Path) -> None:
    """Keys made by the command, used by the daemon from the environment, and by a subscriber."""
    from daemon.config.publisher import CurveConfig
    from daemon.publish.curve_keys import new_pair, secret_key

    public, secret = new_pair(tmp_path, "lookout")
    os.environ["LOOKOUT_TEST_SECRET"] = secret_key(CurveConfig(secret_key_file=secret)).decode()
    try:
        config: dict[str, object] = {
            "sources": [{"id": "cam", "type": "synthetic"}],
            "publisher": {"curve": {"secret_key": "${LOOKOUT_TEST_SECRET}"}},
        }
        with Lookout(tmp_path, config) as lookout, Subscriber(lookout.endpoint, server_key=public) as subscriber:
            receive_until(subscriber, lambda message: isinstance(message, Detections))
            assert os.environ["LOOKOUT_TEST_SECRET"] not in lookout.log()
    finally:
        del os.environ["LOOKOUT_TEST_SECRET"]


def test_the_demo_model_and_config_yaml_fit() -> None:
    assert DEMO_MODEL.stat().st_size < 3_000_000
    text = (DEMO_MODEL.parents[1] / "config.yaml").read_text()
    assert parse(text).model.path == Path("models/demo.onnx")


@pytest.mark.parametrize(
    ("encoding", "tracked", "is_written"), [("json", True, True), ("json", False, False), ("msgpack", True, False)]
)
def test_boxes_are_written_as_json_where_the_tracker_is_compiled(
    encoding: Encoding, tracked: bool, is_written: bool
) -> None:
    tracking = TrackingConfig(enabled=tracked)
    config = _config(SyntheticConfig(id="cam", frames=20, pace="fast"), audience=True, tracking=tracking)
    publisher = msgspec.structs.replace(config.publisher, encoding=encoding)
    app = build(
        msgspec.structs.replace(config, publisher=publisher, board=BoardConfig(mode="lossless", depth=4)),
        Seams(open_detector=lambda _, options: FakeDetector(options)),
    )
    assert app.parts.publishing.boxes.is_compiled == is_written
    with Subscriber(app.endpoint, kinds=["detections"]) as subscriber:
        assert app.run() == 0
        messages = receive_until(subscriber, has_seen(20, "cam"))
    seqs = [message.seq for message in messages if isinstance(message, Detections)]
    assert seqs == list(range(20))


def test_boxes_are_written_as_json_once_the_first_tracked_source_has_come() -> None:
    config = _config(SyntheticConfig(id="cam"))
    app = build(config, Seams(open_detector=lambda _, options: FakeDetector(options)))
    app.start()
    try:
        assert not app.parts.publishing.boxes.is_compiled
        tracked = msgspec.structs.replace(config, tracking=TrackingConfig(enabled=True))
        app.changes.submit(lambda _: tracked).result(120)
        assert app.parts.publishing.boxes.is_compiled
    finally:
        app.stop()


def test_the_status_says_where_frames_are_too_few_to_track() -> None:
    """From the frame on that shows it; once, for the source that is slow and tracked."""
    sources = [
        SyntheticConfig(id=name, fps=fps, frames=20, pace="fast", tracking=tracking)
        for name, fps, tracking in (("slow", 1, True), ("enough", 15, True), ("untracked", 1, False))
    ]
    config = _config(*sources, audience=True, board=BoardConfig(mode="lossless", depth=4))
    app = build(config, Seams(open_detector=lambda _, options: FakeDetector(options)))
    with Subscriber(app.endpoint, kinds=["status", "detections"]) as subscriber:
        assert app.run() == 0
        messages = receive_until(subscriber, has_seen(20, *(source.id for source in sources)))
    statuses = [message for message in messages if isinstance(message, Status)]
    notes = [(one.source, note) for one in statuses if one.format for note in one.format.notes]
    assert [source for source, _ in notes] == ["slow"]
    assert "1 frames/s are analysed, too few to track well" in notes[0][1]
