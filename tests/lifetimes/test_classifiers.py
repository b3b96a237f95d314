"""A daemon whose classifiers hang, fail, are refused, or still have work when it stops. Detection goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from daemon.build import build
from daemon.config.model import ClassifierConfig
from daemon.config.root import MonitorConfig
from daemon.config.sources import TrackingConfig
from daemon.daemon import Daemon
from daemon.errors import ConfigError
from daemon.seams import Seams
from daemon.system.stop_token import StopToken
from daemon.system.time_limits import Limits
from detectors.fake.detector import FakeDetector
from detectors.port import DetectorError, Options
from lookout.client import Subscriber
from lookout.messages import ClassifierMetrics, Detections, Message
from tests.lifetimes.gate import Gate
from tests.lifetimes.parts import Detector
from tests.lifetimes.rig import wait_until
from tests.lifetimes.running import STREET, config_of, only, running, wait_up, warned
from tests.support.daemon import receive_until

_LOOKS: dict[str, Any] = {"wanted": ["dark", "bright"], "min_px": 1, "every_s": 0.1, "attempts": 100}
_SETTINGS: dict[str, Any] = {
    "tracking": TrackingConfig(enabled=True),
    "classifiers": [ClassifierConfig(name="light", path=Path("light.onnx"), **_LOOKS)],
    "monitor": MonitorConfig(stall_after_s=60, interval_s=0.2, stuck_after_s=3.0),
}


class Bench:
    """A classifier that the test holds.

    Attributes:
        gate: its lane waits there.
        fails: when it is set, its lane fails.
    """

    def __init__(self) -> None:
        self.gate, self.fails = Gate(), StopToken()
        self.opened: list[Detector] = []

    def open(self, _: object, options: Options) -> Detector:
        self.opened.append(Detector(options, Gate(), self.gate, self.fails))
        return self.opened[-1]


def _metrics(app: Daemon) -> ClassifierMetrics:
    return app.parts.classifiers.metrics()["light"]


def _adds_up(found: ClassifierMetrics) -> bool:
    dropped = msgspec.structs.asdict(found.dropped)
    return bool(found.requested == found.classified + sum(dropped.values()) + found.pending)


def _is_settled(message: Message) -> bool:
    if not isinstance(message, Detections):
        return False
    return any(one.attributes["light"].settled for one in message.detections if one.attributes)


def test_attributes_come_with_later_messages(tmp_path: Path) -> None:
    settings = _SETTINGS | {"classifiers": [msgspec.structs.replace(_SETTINGS["classifiers"][0], attempts=3)]}
    with (
        running(tmp_path, STREET, config=settings, open_classifier=Bench().open) as app,
        Subscriber(app.endpoint) as subscriber,
    ):
        *_, last = receive_until(subscriber, _is_settled)
        assert isinstance(last, Detections)
        attribute = (last.detections[0].attributes or {})["light"]
        assert attribute.value in ("dark", "bright")
        assert attribute.at_seq < last.seq
        assert app.stop() == 0
        assert _metrics(app).pending == 0
        assert _adds_up(_metrics(app))


def test_a_classifier_that_hangs_delays_nothing(tmp_path: Path) -> None:
    """Frames go on, looks that find no room are counted, the hang is named, and the stop is in time."""
    bench = Bench()
    settings = _SETTINGS | {"classifiers": [msgspec.structs.replace(_SETTINGS["classifiers"][0], max_pending=1)]}
    limits = Limits(stop=1.0, close=0.1)
    with running(tmp_path, STREET, config=settings, open_classifier=bench.open, limits=limits) as app:
        bench.gate.close()
        bench.gate.wait_for_one()
        wait_up(app, "street")
        before = app.ledger.counts()["street"].published
        wait_until(lambda: app.ledger.counts()["street"].published > before + 20, "frames go on")
        wait_until(lambda: any("classifier-light is stuck" in row for row in app.health.warnings()), "it is named")
        assert app.health.problems() == []
        with warned() as lines:
            assert app.stop() == 0
        assert any("classifier-light" in line.get("threads", ()) for line in lines)
        found = _metrics(app)
        assert (found.pending, found.dropped.shutdown) == (0, 1)
        assert _adds_up(found)
        assert bench.opened[0].closed == 0
        bench.gate.open()
        wait_until(lambda: bench.opened[0].closed == 1, "its thread closes it")
    assert not bench.opened[0].closed_under_a_lane
    assert _metrics(app).classified == found.classified  # its late result means nothing


def test_a_classifier_that_fails_costs_attributes_alone(tmp_path: Path) -> None:
    bench = Bench()
    with running(tmp_path, STREET, config=_SETTINGS, open_classifier=bench.open) as app:
        wait_until(lambda: _metrics(app).classified > 2, "it looks")
        bench.fails.set()
        wait_until(lambda: _metrics(app).failure is not None, "it fails")
        before = app.ledger.counts()["street"].published
        wait_until(lambda: app.ledger.counts()["street"].published > before + 20, "frames go on")
        assert app.health.problems() == []
        assert app.health.warnings() == ["classifier-light has failed: out of memory; restart to try again"]
        wait_until(lambda: _reported(app) == "out of memory", "it is told in metrics")
        wait_until(lambda: bench.opened[0].closed == 1, "its model is closed")
        assert app.stop() == 0
        assert _adds_up(_metrics(app))
        assert _metrics(app).dropped.failed >= 1


def _reported(app: Daemon) -> str | None:
    return app.monitor.last.classifiers["light"].failure if app.monitor.last else None


def test_sources_come_and_go_while_looks_are_pending(tmp_path: Path) -> None:
    bench = Bench()
    second = msgspec.structs.replace(STREET, id="second")
    with running(tmp_path, STREET, second, config=_SETTINGS, open_classifier=bench.open) as app:
        wait_until(lambda: _metrics(app).classified > 2, "it looks")
        bench.gate.close()
        wait_until(lambda: _metrics(app).pending > 0, "looks wait")
        only(app, second)
        assert _adds_up(_metrics(app))
        bench.gate.open()
        done = _metrics(app).classified
        wait_until(lambda: _metrics(app).classified > done + 2, "it looks at the other")
        only(app, STREET, second)
        wait_up(app, "street")
        assert app.stop() == 0
        assert _adds_up(_metrics(app))


def test_a_reload_with_other_classifiers_is_refused(tmp_path: Path) -> None:
    """Added, changed or removed: nothing changes, and it is said what to do."""
    with running(tmp_path, STREET, config=_SETTINGS, open_classifier=Bench().open) as app:
        (row,) = _SETTINGS["classifiers"]
        for rows in ([], [msgspec.structs.replace(row, threshold=0.5)], [row, msgspec.structs.replace(row, name="b")]):
            change = app.changes.submit(lambda now, rows=rows: msgspec.structs.replace(now, classifiers=rows))  # type: ignore[misc]
            with pytest.raises(ConfigError, match="classifiers: cannot change while running: restart"):
                change.result(60)
        assert app.changes.config.classifiers == [row]
        done = _metrics(app).classified
        wait_until(lambda: _metrics(app).classified > done, "it still looks")


def test_another_model_must_have_the_labels(tmp_path: Path) -> None:
    """A model without them is refused, and the old one goes on; one that has them gets the same attributes."""

    class Other(FakeDetector):
        def __init__(self, options: Options, labels: tuple[str, ...]) -> None:
            super().__init__(options)
            self.info = replace(self.info, labels=labels)

    labels: list[tuple[str, ...]] = [("dark", "bright"), ("person", "car"), ("dark", "bright", "new")]
    opened = iter(labels)
    with running(
        tmp_path,
        STREET,
        config=_SETTINGS,
        open_detector=lambda _, options: Other(options, next(opened)),
        open_classifier=Bench().open,
    ) as app:
        with pytest.raises(ConfigError, match=r"classifiers\[0\].for: the model has no label 'dark'"):
            _swap(app, 0.3)
        _swap(app, 0.2)
        assert app.parts.model.labels[-1] == "new"
        done = _metrics(app).classified
        wait_until(lambda: _metrics(app).classified > done, "it still looks")


def _swap(app: Daemon, confidence: float) -> None:
    def other(now: Any) -> Any:
        return msgspec.structs.replace(now, model=msgspec.structs.replace(now.model, confidence=confidence))

    app.changes.submit(other).result(60)


def _breaks(after: int) -> tuple[list[FakeDetector], Callable[[object, Options], FakeDetector]]:
    """A function that opens so many classifiers, and no more."""
    opened: list[FakeDetector] = []

    class Closing(FakeDetector):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    def open_one(_: object, options: Options) -> FakeDetector:
        if len(opened) == after:
            raise DetectorError("light.onnx is no classifier: set model.labels")
        opened.append(Closing(options))
        return opened[-1]

    return opened, open_one


def test_a_classifier_that_does_not_open_is_named() -> None:
    """No daemon without the classifiers that were asked for; what is open is closed again."""
    row = _SETTINGS["classifiers"][0]
    rows = [row, msgspec.structs.replace(row, name="kind")]
    opened, open_one = _breaks(1)
    threads = threading.active_count()
    with pytest.raises(DetectorError, match=r"classifiers, name kind: light\.onnx is no classifier: set its labels"):
        build(
            config_of(STREET, **_SETTINGS | {"classifiers": rows}),
            Seams(open_detector=lambda _, options: FakeDetector(options), open_classifier=open_one),
        )
    assert [one.closed for one in opened] == [1]  # type: ignore[attr-defined]
    assert threading.active_count() <= threads


def test_a_daemon_that_never_started_closes_its_classifiers() -> None:
    opened, open_one = _breaks(5)
    app = build(
        config_of(STREET, **_SETTINGS),
        Seams(open_detector=lambda _, options: FakeDetector(options), open_classifier=open_one),
    )
    assert app.stop() == 0
    assert [one.closed for one in opened] == [1]  # type: ignore[attr-defined]
