"""What `lookout check` says of load: which resource is full first, and how many sources fit."""

from __future__ import annotations

import itertools
import os
import re
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

import numpy as np
import pytest

from daemon.cli import invoke
from daemon.control.capacity import Demand, MachineLimits, bottleneck, loads, measure_detector
from detectors.detections import Detections
from detectors.fake.detector import FakeDetector, FakeLane
from detectors.port import DetectorError, HostImage, Image, Options, PreparedImage, StageTimes

_HEADS = Path(__file__).resolve().parents[1] / "data" / "heads"
IMAGE = HostImage(np.zeros((4, 4, 3), np.uint8))


def test_the_fullest_comes_first() -> None:
    """Ten cameras of 30 fps, of which 10 are looked at, 20 ms each to decode: 6 of 4 cores, 100 of 400 frames/s."""
    rows = loads([Demand(30, 10, 0.02)] * 10, MachineLimits(images_per_s=400, cores=4))
    assert [(row.name, round(row.share, 6)) for row in rows] == [("decoding on the CPU", 1.5), ("detector", 0.25)]
    assert "1.5 times" in bottleneck(rows, 10)
    assert "about 6 of 10" in bottleneck(rows, 10)


def test_tiles_ask_for_several_pictures_a_frame() -> None:
    (row,) = [row for row in loads([Demand(30, 10, 0.0, pictures=5)] * 4, MachineLimits(400, 4)) if row.limit == 400]
    assert (row.needed, row.unit) == (200, "pictures/s")


def test_room_for_more() -> None:
    rows = loads([Demand(30, 30, 0.001)] * 4, MachineLimits(images_per_s=400, cores=4))
    assert "detector: full first, at 30%" in bottleneck(rows, 4)
    assert "about 9 more" in bottleneck(rows, 4)


def test_what_a_gpu_has_is_counted_where_it_decodes() -> None:
    """Ten cameras of a hundredth of the decoder and 60 MiB each, beside lanes that take 1,000 of 4,000 MiB."""
    limits = MachineLimits(images_per_s=10_000, cores=8, memory=(4000 << 20, 1000 << 20), bus=1e9)
    rows = loads([Demand(30, 30, 0.0, decoder=0.01, memory=60 << 20)] * 10, limits)
    assert [row.name for row in rows[:2]] == ["the GPU's memory", "the GPU's decoder"]
    assert "about 40 more" in bottleneck(rows, 10)
    assert {row.name: row.needed for row in rows}["the bus to the GPU"] == 0


def test_a_gpu_with_too_little_memory_says_how_many_fit() -> None:
    limits = MachineLimits(images_per_s=10_000, cores=8, memory=(2000 << 20, 1000 << 20))
    rows = loads([Demand(30, 30, 0.0, decoder=0.001, memory=60 << 20)] * 20, limits)
    assert "enough for about 16 of 20" in bottleneck(rows, 20)
    assert "decoded on the CPU" in bottleneck(rows, 20)


def test_a_gpu_runs_out_of_decoder_sessions() -> None:
    limits = MachineLimits(images_per_s=10_000, cores=8, sessions=270)
    rows = loads([Demand(30, 30, 0.0, decoder=0.003)] * 300 + [Demand(30, 30, 0.001)], limits)
    assert rows[0].name == "the GPU's decoder sessions"
    assert rows[0].share == pytest.approx(300 / 270)


def test_frames_from_the_cpu_cross_the_bus() -> None:
    rows = loads([Demand(30, 30, 0.001, frame_bytes=6_000_000)] * 10, MachineLimits(10_000, 8, bus=2e9))
    assert rows[0].name == "the bus to the GPU"
    assert rows[0].share == pytest.approx(0.9)


def test_the_detector_is_measured_over_all_its_lanes() -> None:
    """Two that work at once, for each begins with a batch that waits for the other's; the rate is of what both did."""
    meeting, batches = threading.Barrier(2, timeout=60), itertools.count()

    def serve(seconds: float) -> None:
        if next(batches) < 2:
            meeting.wait()
        threading.Event().wait(seconds)

    detector = FakeDetector(Options(Path("none"), max_batch=4, lanes=2), 0.001, serve)
    began = monotonic()
    rate = measure_detector(detector, [IMAGE], 0.2)
    most_s, frames = monotonic() - began, 4 * (next(batches) - 2)
    assert frames / most_s <= rate <= frames / 0.2


def test_a_lane_that_fails_is_told_and_not_waited_for() -> None:
    class FailingLane(FakeLane):
        def detect(self, images: Sequence[Image | PreparedImage]) -> tuple[list[Detections], StageTimes]:
            raise DetectorError("no memory for another execution context")

    class Failing(FakeDetector):
        def lane(self) -> FakeLane:
            return FailingLane(0.5, 0.0, lambda _: None)

    with pytest.raises(DetectorError, match="no memory"):
        measure_detector(Failing(Options(Path("none"), lanes=3)), [IMAGE])


@pytest.mark.parametrize("batch", [0, 10])
def test_ctrl_c_ends_it(batch: int) -> None:
    """Before all lanes have begun, and while they are measured."""
    batches = itertools.count()

    def serve(_: float) -> None:
        number = next(batches)
        if number == batch:
            os.kill(os.getpid(), signal.SIGINT)
        if number > 100_000:
            raise DetectorError("it goes on")

    detector = FakeDetector(Options(Path("none"), max_batch=1, lanes=2), 0.001, serve)
    with pytest.raises(KeyboardInterrupt):
        measure_detector(detector, [IMAGE], 60)
    assert next(batches) < 100_000


def test_check_measures_each_input_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    street = "{id: %s, type: synthetic, width: 64, height: 36, input_size: %s}"
    sources = ", ".join((street % ("a", "null"), street % ("b", "[160, 96]")))
    config.write_text(f"model: {{path: {_HEADS}/yolov8.onnx, backend: cpu}}\nsources: [{sources}]\n")
    assert invoke(["check", "--running", "-c", str(config)]) == 0
    said = capsys.readouterr().out
    assert "128x128, 160x96, batches up to 8" in said
    assert re.search(r"at 160x96 the detector does [\d.]+ pictures/s: one counts as [\d.]+ of 128x128", said)


def test_check_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    street = "{id: %s, type: synthetic, width: 64, height: 36, pace: %s}"
    sources = ", ".join((street % ("a", "realtime"), street % ("b", "fast")))
    config.write_text(f"model: {{path: none, backend: fake}}\nsources: [{sources}]\n")
    assert invoke(["check", "--running", "-c", str(config)]) == 0
    said = capsys.readouterr().out
    assert "detector" in said
    assert "more such sources fit" in said
    assert "not counted: 1" in said


def test_check_says_where_frames_are_too_few_to_track(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By `max_fps`, by the source itself, and by the timeout; not where nobody tracks."""
    config = tmp_path / "config.yaml"
    street = "  - {id: %s, type: synthetic, width: 64, height: 36, fps: %s, max_fps: %s, tracking: %s}\n"
    rows = (
        ("slow", 30, 1, "true"), ("its-own", 2, "null", "{timeout_s: 5}"), ("short", 10, "null", "{timeout_s: 0.2}"),
        ("enough", 30, 5, "true"), ("free", 30, 1, "false"),
    )  # fmt: skip
    config.write_text("model: {path: none, backend: fake}\nsources:\n" + "".join(street % row for row in rows))
    assert invoke(["check", "--running", "-c", str(config)]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if "too few to track well" in line]
    far, late = (
        "objects that move further than their own size",
        "objects count as gone after %s s, later than timeout_s",
    )
    assert [line.split(":")[0] for line in said] == ["slow", "its-own", "short"]
    assert [far in line for line in said] == [True, True, False]
    assert late % 3 in said[0]
    assert "later" not in said[1]
    assert late % 0.3 in said[2]
