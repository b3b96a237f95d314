"""Rates and latencies of a running daemon while something happens that must not be felt, and how soon it ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import numpy as np
import onnx
import pytest
import yaml

from daemon.capture.processes.run import PROGRAM
from lookout.client import Subscriber
from lookout.messages import Detections, Message, Metrics
from tests.support.daemon import DEMO_MODEL, Lookout, is_state, receive_until
from tests.support.rtsp import RtspServer

pytestmark = pytest.mark.speed


def _street(number: int, **more: object) -> dict[str, object]:
    return {
        "id": f"street-{number}",
        "type": "synthetic",
        "width": 160,
        "height": 96,
        "fps": 10,
        "seed": number,
        **more,
    }


def _collect(subscriber: Subscriber, seconds: float) -> list[Message]:
    messages = []
    until = monotonic() + seconds
    while monotonic() < until:
        if (message := subscriber.receive(0.1)) is not None:
            messages.append(message)
    return messages


def _p99(messages: list[Message]) -> float:
    return float(np.percentile([row.latency.total for row in messages if isinstance(row, Detections)], 99))


def _made_by(model: str) -> Callable[[Message], bool]:
    return lambda message: isinstance(message, Detections) and message.model.name == model


def _steady(metrics: Subscriber, count: int) -> list[Metrics]:
    found: list[Metrics] = []
    while len(found) < count:
        message = metrics.receive(5)
        assert isinstance(message, Metrics)
        found.append(message)
    return found


def _median_p99(metrics: list[Metrics]) -> float:
    return float(np.median([message.latency["total"].p99 for message in metrics if message.latency]))


def test_a_subscriber_that_stops_reading_costs_no_time(tmp_path: Path) -> None:
    """30 s without reading: the daemon's rate and latency stay."""
    street = {"fps": 200, "width": 64, "height": 64}
    config: dict[str, object] = {
        "model": {"path": "none", "backend": "fake"},
        "sources": [_street(number, **street) for number in range(4)],
        "publisher": {"high_water_mark": 50, "endpoint": f"ipc://{tmp_path}/lookout.sock"},
        "monitor": {"interval_s": 1},
    }
    with Lookout(tmp_path, config) as lookout, lookout.subscribe("metrics") as metrics:
        receive_until(metrics, lambda message: isinstance(message, Metrics) and message.uptime_s > 3)
        before = _steady(metrics, 8)
        with Subscriber(lookout.endpoint, high_water_mark=50) as lazy:
            assert lazy.receive(10) is not None
            during = _steady(metrics, 30)
        after = _steady(metrics, 8)
    assert _median_p99(during) <= 1.5 * max(_median_p99(before), _median_p99(after))
    rates = [float(np.median([m.fps for m in rows])) for rows in (before, during, after)]
    assert rates[1] >= 0.95 * min(rates[0], rates[2])


def test_a_model_is_swapped_without_a_pause(tmp_path: Path) -> None:
    """The other model is opened on the cores that this one works on: p99 no more than doubles."""
    other = tmp_path / "other.onnx"
    model = onnx.load(DEMO_MODEL)
    model.producer_name = "another"
    onnx.save(model, other)
    sources = [_street(number, width=320, height=180) for number in range(3)]
    before, during = list[Message](), list[Message]()
    with Lookout(tmp_path, {"sources": sources, "model": {"path": str(DEMO_MODEL), "threads": 1}}) as lookout:
        with lookout.subscribe() as subscriber:
            receive_until(subscriber, lambda message: isinstance(message, Detections) and message.seq >= 10)
            for path in (other, DEMO_MODEL, other):
                before += _collect(subscriber, 4)
                whole = yaml.safe_load(lookout.config.read_text()) | {"model": {"path": str(path), "threads": 1}}
                lookout.config.write_text(yaml.safe_dump(whole))
                lookout.process.send_signal(signal.SIGHUP)
                during += receive_until(subscriber, _made_by(path.stem)) + _collect(subscriber, 2)
        assert lookout.stop() == 0
    assert _p99(during) <= 2 * _p99(before)


@pytest.fixture
def servers(long_clip: Path) -> Iterator[tuple[RtspServer, RtspServer]]:
    first, second = RtspServer({"cam": long_clip}), RtspServer({"cam": long_clip})
    yield first, second
    first.kill()
    second.kill()


def _rate(lookout: Lookout, source: str, seconds: float) -> float:
    """Detections a second of one source."""
    with lookout.subscribe("detections", sources=(source,)) as subscriber:
        assert subscriber.receive(10) is not None
        begun = monotonic()
        count = len(_collect(subscriber, seconds))
        return count / (monotonic() - begun)


@pytest.mark.needs("ffmpeg", "rtsp")
def test_a_killed_server_comes_back_soon_and_its_neighbour_keeps_its_rate(
    servers: tuple[RtspServer, RtspServer], tmp_path: Path
) -> None:
    """Ten seconds of outage: up again within 5 s of the server's return, the other source keeps its rate within 5 %."""
    sources = [{"id": name, "type": "av", "url": server.url("cam")} for name, server in zip("ab", servers)]
    with Lookout(tmp_path, {"sources": sources}) as lookout, lookout.subscribe("status", sources=("a",)) as status:
        receive_until(status, is_state("a", "up"))
        before = _rate(lookout, "b", 5)
        servers[0].kill()
        receive_until(status, is_state("a", "down"))
        during = _rate(lookout, "b", 10)
        servers[0].start()
        receive_until(status, is_state("a", "up"), timeout_s=5)
        assert during == pytest.approx(before, rel=0.05)


@pytest.mark.needs("ffmpeg")
@pytest.mark.parametrize("processes", [0, 2])
def test_a_stop_takes_less_than_five_seconds(clip: Path, tmp_path: Path, processes: int) -> None:
    sources = [{"id": f"s{n}", "type": "av", "url": str(clip), "loop": True} for n in range(2)]
    config: dict[str, object] = {"sources": sources, "capture_processes": processes}
    with Lookout(tmp_path, config) as lookout, lookout.subscribe("status") as subscriber:
        receive_until(subscriber, is_state("s1", "up"))
        began = monotonic()
        assert lookout.stop() == 0
        assert monotonic() - began < 5


@pytest.mark.needs("ffmpeg")
def test_so_does_one_with_a_capture_process_that_hangs(clip: Path, tmp_path: Path) -> None:
    sources = [{"id": f"s{n}", "type": "av", "url": str(clip), "loop": True} for n in range(2)]
    with Lookout(tmp_path, {"sources": sources, "capture_processes": 2}) as lookout:
        with lookout.subscribe("status") as subscriber:
            receive_until(subscriber, is_state("s1", "up"))
        os.kill(lookout.children(PROGRAM)[0].pid, signal.SIGSTOP)
        began = monotonic()
        lookout.stop()
        assert monotonic() - began < 6  # and a moment to bury it
