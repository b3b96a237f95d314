"""The parts of tracing without a daemon."""

from __future__ import annotations

from daemon.clock import Awaited, Clock, SystemClock
from daemon.config.otlp import OtlpConfig
from daemon.pipeline.frames import FrameInfo
from daemon.pipeline.outbox import Result, Served, Work
from daemon.redact import Url
from daemon.tracing.exporter import Exporter, OnSent
from daemon.tracing.settings import Settings, settings_of
from detectors.detections import nothing
from detectors.port import StageTimes
from lookout.messages import FrameClock, Latency, Model
from tests.support.runtime import runtime_of

SERVED = Served(Model("m", "0" * 12, "fp32", "fake"), ("dog",), "cpu")
_NOTHING = nothing()


def settings(url: str = "http://127.0.0.1:1", **more: object) -> Settings:
    found = settings_of(OtlpConfig(endpoint=Url(url), **more), {}, "run-1")  # type: ignore[arg-type]
    assert found
    return found


def exporter(url: str, on_sent: OnSent | None = None, clock: Clock | None = None, **more: object) -> Exporter:
    """One that is not started."""
    return Exporter(settings(url, **more), on_sent, runtime_of(clock or SystemClock()))


def result(seq: int, now_ns: int, total_ns: int, source: str = "cam") -> tuple[Result, Latency]:
    """A frame that is about to be sent."""
    captured = now_ns - total_ns
    info = FrameInfo(source, "s", seq, None, captured, 1, FrameClock("arrival"), 5, 640, 480)
    work = Work("lane-0", 1, captured + 60, captured + 70)
    made = Result(info, _NOTHING, captured + 10, StageTimes(10, 20, 5), SERVED, work)
    return made, Latency(5, 10, 10, 20, 5, total_ns)


class QuickClock(SystemClock):
    """Waits take a thousandth of their time.

    Attributes:
        waits: seconds of each, as they were asked for.
    """

    def __init__(self) -> None:
        self.waits: list[float] = []

    def wait(self, event: Awaited, seconds: float) -> bool:  # type: ignore[override]
        self.waits.append(seconds)
        return event.wait(seconds / 1000)
