"""The end of a daemon whose parts block: nothing is closed while in use, and blocked parts are named."""

from __future__ import annotations

import os
import signal
import threading
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from daemon.analytics.rules import Rules
from daemon.build import build
from daemon.config.events import EventsConfig
from daemon.config.http import HttpConfig
from daemon.config.root import MonitorConfig
from daemon.config.sources import TrackingConfig
from daemon.daemon import Daemon
from daemon.errors import ConfigError
from daemon.monitoring.health import PART_STUCK
from daemon.pipeline.ledger import Rows
from daemon.rule_config import ObjectConfig
from daemon.seams import Seams
from daemon.system.stop_token import StoppedError, StopToken
from daemon.system.time_limits import Limits
from detectors.fake.detector import FakeDetector, FakeLane
from detectors.port import DetectorError, Options
from tests.lifetimes.gate import Gate
from tests.lifetimes.parts import Detector, open_probe
from tests.lifetimes.rig import Resources, wait_until
from tests.lifetimes.running import STREET, config_of, running, wait_up, warned


def test_a_detector_is_never_closed_under_a_lane(tmp_path: Path) -> None:
    """D10: the daemon ends without the lane, and the lane closes the detector when it comes out."""
    detecting, opening, found = Gate(), Gate(), list[Detector]()

    def open_detector(_: object, options: Any) -> Detector:
        found.append(Detector(options, opening, detecting, StopToken()))
        return found[-1]

    with running(tmp_path, STREET, open_detector=open_detector, limits=Limits(stop=0.5, close=0.1)) as app:
        detecting.close()
        detecting.wait_for_one()
        assert app.stop() == 0
        assert found[0].closed == 0
        detecting.open()
        wait_until(lambda: found[0].closed == 1, "the lane closes it")
    assert not found[0].closed_under_a_lane


class Half(FakeDetector):
    """The first lane cannot be made, the others take long."""

    def __init__(self, options: Options, gate: Gate) -> None:
        super().__init__(options)
        self._gate, self._made = gate, count()

    def lane(self) -> FakeLane:
        if next(self._made) == 0:
            raise DetectorError("no memory for a lane")
        self._gate()
        return super().lane()


def test_a_lane_that_cannot_be_made_is_a_mistake_and_no_stop() -> None:
    """The caller hears the reason, whether the other lanes are ready or not."""
    gate = Gate()
    gate.close()
    config = config_of(STREET, lanes=2)
    app = build(config, Seams(open_detector=lambda _, options: Half(options, gate), limits=Limits(stop=0.5, close=0.1)))
    try:
        with pytest.raises(DetectorError, match="no memory for a lane"):
            app.start()
    finally:
        gate.open()
        app.stop()


def test_a_monitor_that_hangs_is_named_and_ends_the_daemon() -> None:
    """D15: whatever it hangs in, the watchdog is a thread of its own."""
    gate = Gate()

    def hold(_: Rows) -> None:
        gate()

    app = build(
        config_of(STREET, monitor=MonitorConfig(stuck_after_s=3)),
        Seams(open_detector=lambda _, options: FakeDetector(options), rows=[hold], limits=Limits(stop=1.0)),
    )
    runner = threading.Thread(target=app.run)
    try:
        gate.close()
        runner.start()
        gate.wait_for_one()
        wait_until(lambda: any(row.startswith("monitor is stuck") for row in app.health.problems()), "it is named")
        runner.join(60)
        assert not runner.is_alive()
        assert app.stop() == PART_STUCK
    finally:
        gate.open()
        app.request_stop()
        runner.join(60)


def test_nvml_that_hangs_costs_its_figures_alone(tmp_path: Path) -> None:
    """D15: from the start, and again after it has answered."""
    gate = Gate()
    gate.close()
    config = {"monitor": MonitorConfig(interval_s=0.1, stall_after_s=60)}

    def words(app: Daemon) -> str | None:
        return app.monitor.last.gpus_reason if app.monitor.last else "none yet"

    def has_figures(app: Daemon) -> bool:
        return app.monitor.last is not None and bool(app.monitor.last.gpus)

    with running(tmp_path, STREET, config=config, open_probe=open_probe(gate)) as app:
        wait_until(lambda: "NVML has not answered" in (words(app) or ""), "it is said")
        wait_up(app, "street")
        assert app.health.problems() == []
        gate.open()
        wait_until(lambda: has_figures(app) and words(app) is None, "it answers")
        gate.close()
        wait_until(lambda: "NVML has not answered" in (words(app) or ""), "it is said again")
        assert not has_figures(app)
        assert app.stop() == 0
        gate.open()


def _resources() -> Resources:
    return Resources.now()


def test_a_constructor_that_fails_leaves_nothing_open(tmp_path: Path) -> None:
    """D20: such as for a file that cannot be written, which is found last."""
    http, monitor = HttpConfig(enabled=True, port=0), MonitorConfig(frames_file=tmp_path / "missing" / "frames.jsonl")
    config = config_of(STREET, http=http, monitor=monitor)
    detectors: list[Detector] = []

    def open_detector(_: object, options: Any) -> Detector:
        detectors.append(Detector(options, Gate(), Gate(), StopToken()))
        return detectors[-1]

    before = _resources()
    with pytest.raises(ConfigError, match=r"monitor\.frames_file: .* cannot be written"):
        build(config, Seams(open_detector=open_detector))
    assert [row.closed for row in detectors] == [1]
    wait_until(lambda: _resources().threads <= before.threads, "no thread is left", _resources)
    wait_until(lambda: _resources().files <= before.files, "no descriptor is left", _resources)


def test_a_constructor_that_is_told_to_stop_leaves_nothing_open() -> None:
    """The stop comes while the model is opened; a late result is closed."""
    gate, stop, detectors = Gate(), StopToken(), list[Detector]()
    gate.close()

    def open_detector(_: object, options: Any) -> Detector:
        gate()
        detectors.append(Detector(options, Gate(), Gate(), StopToken()))
        return detectors[-1]

    def tell() -> None:
        gate.wait_for_one()
        stop.set()

    before = _resources()
    teller = threading.Thread(target=tell)
    teller.start()
    with pytest.raises(StoppedError):
        build(config_of(STREET), Seams(open_detector=open_detector), stop=stop)
    teller.join(60)
    gate.open()
    wait_until(lambda: [row.closed for row in detectors] == [1], "it is closed")
    wait_until(lambda: _resources().threads <= before.threads, "no thread is left", _resources)
    wait_until(lambda: _resources().files <= before.files, "no descriptor is left", _resources)


def test_a_daemon_that_cannot_be_built_closes_its_model_without_a_word(tmp_path: Path) -> None:
    """The monitor is made after the lanes, and finds no folder for its file."""
    opened: list[Detector] = []

    def open_detector(_: object, options: Options) -> Detector:
        opened.append(Detector(options, Gate(), Gate(), StopToken()))
        return opened[-1]

    config = config_of(STREET, monitor=MonitorConfig(frames_file=tmp_path / "absent" / "frames.jsonl"))
    with warned() as lines, pytest.raises(ConfigError, match=r"monitor\.frames_file"):
        build(config, Seams(open_detector=open_detector))
    assert [row.closed for row in opened] == [1]
    assert lines == []


def test_a_process_of_rules_that_hangs_is_left_in_time(tmp_path: Path) -> None:
    """Its pipe is full, so whoever announces the end of a source waits: the capture, and then the stop itself."""
    street = msgspec.structs.replace(STREET, rules=[ObjectConfig(name="all")])
    own = {"tracking": TrackingConfig(enabled=True), "events": EventsConfig(own_process=True)}
    with running(tmp_path, street, config=own, limits=Limits(stop=2.0, close=0.1)) as app:
        wait_up(app, "street")
        (child,) = set(app.parts.pids) - {os.getpid()}
        os.kill(child, signal.SIGSTOP)
        filling = threading.Thread(target=_fill, args=[app.parts.rules], daemon=True)
        filling.start()
        stopping = threading.Thread(target=app.stop, daemon=True)
        stopping.start()
        stopping.join(30)
        in_time = not stopping.is_alive()
        if not in_time:
            os.kill(child, signal.SIGKILL)
        filling.join()
        assert in_time


def _fill(rules: Rules) -> None:
    for _ in range(40):  # four times as much as the pipe takes
        rules.on_state("x" * 100_000, "connecting", 0)
