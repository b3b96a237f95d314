"""Sharing a detector that cannot do all that is asked of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.build import build
from daemon.capture.sinks import UNLIMITED, Quota
from daemon.config.load import parse
from daemon.config.model import ModelConfig
from daemon.config.publisher import PublisherConfig
from daemon.config.root import Config, MonitorConfig
from daemon.config.sources import SyntheticConfig
from daemon.control.admission import Admission, max_min_rate
from daemon.control.capacity import PictureCosts, SourceCosts
from daemon.daemon import Daemon
from daemon.errors import SourceError
from daemon.seams import Seams
from detectors.fake.detector import FakeDetector
from lookout.client import Subscriber
from lookout.messages import Message, Status, VideoFormat
from tests.support.daemon import all_of, receive_until, wait_until

RATES = st.lists(st.floats(0.1, 120), min_size=1, max_size=40)


@given(RATES, st.floats(1, 2000))
def test_the_level_fills_the_capacity_and_takes_from_the_highest_alone(demands: list[float], capacity: float) -> None:
    level = max_min_rate(demands, capacity)
    given = [demand if level is None else min(demand, level) for demand in demands]
    assert sum(given) == pytest.approx(min(capacity, sum(demands)), rel=1e-6)
    assert (level is None) == (sum(demands) <= capacity * (1 + 1e-9)) or sum(demands) == pytest.approx(capacity)


def test_whoever_leaves_gives_his_share_to_the_others() -> None:
    shares: dict[str, Quota] = {}
    admission = Admission("degrade", capacity=40 / 0.9)
    for name, fps in (("slow", 5.0), ("a", 30.0), ("b", 30.0)):
        admission.admit(name, fps, lambda share, name=name: shares.update({name: share}))  # type: ignore[misc]
    assert {name: share.fps for name, share in shares.items()} == {"slow": None, "a": 17.5, "b": 17.5}
    admission.release("a")
    assert shares["b"] == UNLIMITED


def test_a_picture_of_another_size_costs_what_it_takes() -> None:
    """By its measured rate; tiles of it as many times."""
    shares: dict[str, Quota] = {}
    costs = PictureCosts((640, 640), {(640, 640): 60.0, (1280, 736): 20.0})
    admission = Admission("degrade", capacity=60 / 0.9, cost=lambda _, size: costs(size) if size else 1)
    admission.set_sizes({"wide": (1280, 736)})
    for name in ("wide", "plain"):
        admission.admit(name, 30.0, lambda share, name=name: shares.update({name: share}))  # type: ignore[misc]
    assert [share.fps for share in shares.values()] == [pytest.approx(15.0)] * 2
    admission.set_pictures({"wide": 3})
    assert [share.fps for share in shares.values()] == [pytest.approx(6.0)] * 2
    admission.set_sizes({})
    assert [share.fps for share in shares.values()] == [pytest.approx(15.0)] * 2
    refusing = Admission("refuse", capacity=60 / 0.9, cost=lambda _, size: costs(size) if size else 1)
    refusing.set_sizes({"wide": (1280, 736)})
    with pytest.raises(SourceError, match=r"asks for 90 pictures/s \(3 for a frame\)"):
        refusing.admit("wide", 30.0, lambda _: None).result()


def test_a_source_with_two_models_costs_what_both_take() -> None:
    """In pictures of the first: the second is half as fast."""
    models = {
        "quick": PictureCosts((640, 640), {(640, 640): 60.0}),
        "slow": PictureCosts((320, 320), {(320, 320): 30.0, (640, 640): 10.0}),
    }
    looks = {"a": ("quick",), "b": ("slow",), "both": ("quick", "slow")}
    costs = SourceCosts(models, looks.__getitem__)
    assert costs.rate == 60
    assert [costs(source, None) for source in looks] == [1, 2, 3]
    assert costs("b", (640, 640)) == pytest.approx(6)
    refusing = Admission("refuse", costs.rate / 0.9, cost=costs)
    refusing.admit("a", 30.0, lambda _: None).result()
    with pytest.raises(SourceError, match="asks for 45 pictures/s"):
        refusing.admit("both", 15.0, lambda _: None).result()
    refusing.admit("b", 15.0, lambda _: None).result()


def test_a_size_that_was_not_measured_costs_its_pixels() -> None:
    costs = PictureCosts((640, 640), {(640, 640): 60.0})
    assert costs((640, 640)) == 1
    assert costs((1280, 1280)) == 4


def test_a_frame_of_several_pictures_costs_as_many() -> None:
    """Rates stay fair: each source has as many frames as another, and one frame of tiles costs five pictures."""
    shares: dict[str, Quota] = {}
    admission = Admission("degrade", capacity=60 / 0.9)
    admission.set_pictures({"tiles": 5})
    for name in ("tiles", "plain"):
        admission.admit(name, 30.0, lambda share, name=name: shares.update({name: share}))  # type: ignore[misc]
    assert [share.fps for share in shares.values()] == [pytest.approx(10.0)] * 2
    admission.set_pictures({})
    assert set(shares.values()) == {UNLIMITED}
    refusing = Admission("refuse", capacity=60 / 0.9)
    refusing.set_pictures({"tiles": 5})
    with pytest.raises(SourceError, match=r"asks for 150 pictures/s \(5 for a frame\)"):
        refusing.admit("tiles", 30.0, lambda _: None).result()
    refusing.admit("plain", 30.0, lambda _: None).result()


def test_a_decoder_without_time_for_all_is_shared_before_the_detector() -> None:
    """Of four that ask for 30 % of it each keeps four fifths of its pictures, for which the detector has time."""
    format = VideoFormat("hevc", 1920, 1080, 30.0, "nvdec")
    shares: dict[str, Quota] = {}
    admission = Admission("degrade", 100 / 0.9, lambda _: 0.3)
    for name in "abcd":
        admission.admit(name, 30.0, lambda share, name=name: shares.update({name: share}), format)  # type: ignore[misc]
    expected = Quota(None, 0.22, "the GPU's decoder has time for 78% of its pictures")
    assert shares == dict.fromkeys("abcd", expected)
    admission.release("a")
    assert [shares[name] for name in "bcd"] == [UNLIMITED] * 3


def test_refused_until_there_is_room() -> None:
    admission = Admission("refuse", capacity=40 / 0.9)
    admission.admit("a", 30.0, lambda _: None)
    with pytest.raises(SourceError, match="not admitted"):
        admission.admit("b", 30.0, lambda _: None).result()
    admission.release("a")
    admission.admit("b", 30.0, lambda _: None)


def test_off_lets_everybody_in() -> None:
    for number in range(100):
        Admission().admit(f"cam-{number}", 30.0, lambda _: pytest.fail("limited"))


def test_plain_off_in_yaml_is_a_word() -> None:
    text = "model: {path: m.onnx}\nsources: [{id: a, type: synthetic}]\nadmission: "
    assert parse(text + "off").admission == "off"
    assert parse(text + "degrade").admission == "degrade"


def test_a_full_decoder_refuses_whom_the_detector_would_take() -> None:
    """Three sources of 30 % of the decoder fit, a fourth does not until one of them goes; on the CPU there is room."""
    shares = {"nvdec": 0.3, "cpu": 0.0}
    admission = Admission("refuse", 10_000, lambda format: shares[format.decoder])
    on_gpu, on_cpu = (VideoFormat("h264", 1920, 1080, 30.0, decoder) for decoder in ("nvdec", "cpu"))
    for name in "abc":
        admission.admit(name, 30, lambda _: None, on_gpu)
    with pytest.raises(SourceError, match="of the GPU's decoder, of which the sources that are up take 90%"):
        admission.admit("d", 30, lambda _: None, on_gpu).result()
    admission.admit("d", 30, lambda _: None, on_cpu)
    admission.release("a")
    admission.admit("e", 30, lambda _: None, on_gpu)


@pytest.mark.slow
def test_what_the_detector_does_is_measured_and_shared() -> None:
    """Eight sources of 30 frames/s on a detector that does 80 at most: each is limited to its share of what was
    measured, and says so. Who gets how many: tests/daemon/test_queueing.py."""
    config = Config(
        model=ModelConfig(path=Path("none"), max_batch=8),
        sources=[SyntheticConfig(id=f"cam-{number}", seed=number, width=160, height=90) for number in range(8)],
        publisher=PublisherConfig(endpoint="tcp://127.0.0.1:*"),
        monitor=MonitorConfig(interval_s=1),
        admission="degrade",
    )
    app = build(config, Seams(open_detector=lambda _, options: FakeDetector(options, 0.1)))
    with Subscriber(app.endpoint, kinds=["status"]) as subscriber:
        app.start()
        try:
            told = receive_until(subscriber, all_of(*(_is_limited(source.id) for source in config.sources)))
            wait_until(lambda: _least_limited(app) > 5, "it is kept to")
        finally:
            assert app.stop() == 0
    rates = {float(found[1]) for row in told if (found := _LIMITED.search(getattr(row, "reason", None) or ""))}
    assert max(rates) <= 30
    assert min(rates) <= 80 * 0.9 / 8
    counts = app.ledger.counts().values()
    assert {count.in_flight for count in counts} == {0}


_LIMITED = re.compile(r"limited to ([\d.]+) frames/s")


def _is_limited(source: str) -> Callable[[Message], bool]:
    return lambda row: isinstance(row, Status) and row.source == source and bool(_LIMITED.search(row.reason or ""))


def _least_limited(app: Daemon) -> int:
    """Frames of any source dropped by rate."""
    return min(count.dropped.rate_limit for count in app.ledger.counts().values())
