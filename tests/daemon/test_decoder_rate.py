"""A decoder that is faster or slower than was estimated is found out, and its time shared out anew.

The card is a model of one: what its pictures take, what it is busy with, and what it is too late for.
"""

from __future__ import annotations

import pytest

from daemon.capture.sinks import Quota
from daemon.config.root import AdmissionMode
from daemon.control.admission import Admission
from daemon.control.decoder_rate import DecoderRate
from daemon.errors import SourceError
from lookout.messages import Dropped, GpuMetrics, Metrics, ProcessMetrics, PublisherMetrics, SourceMetrics, VideoFormat

_FORMAT = VideoFormat("h264", 1920, 1080, 30.0, "nvdec")
_SECONDS = 10


class Card:
    """Sources of 30 frames/s on a decoder, seen every ten seconds.

    Args:
        times: of the estimate that a picture takes.
        estimate: share of the decoder that a source takes, by it.
    """

    def __init__(self, times: float, estimate: float, sources: int, mode: AdmissionMode = "degrade") -> None:
        self.times, self.estimate = times, estimate
        self.allowed: dict[str, Quota] = {}
        self.changes = 0
        self.busy: float | None = None  # what is said instead of what is so
        self.skip_cause = True  # as sources do that can
        self._captured = self._late = self._limited = self._uptime = 0
        self.admission = Admission(mode, 1e6, lambda _: estimate, DecoderRate())
        for number in range(sources):
            self.add(f"cam-{number}")
        self.changes = 0

    def add(self, name: str) -> None:
        def on_quota(quota: Quota) -> None:
            self.changes += self.allowed.get(name) not in (None, quota)
            self.allowed[name] = quota

        self.admission.admit(name, 30.0, on_quota, _FORMAT).result()

    @property
    def skip_ratio(self) -> float:
        (share,) = {quota.skip_ratio for quota in self.allowed.values()}
        return share

    @property
    def load(self) -> float:
        """1 is all it can do."""
        left_out = self.skip_ratio if self.skip_cause else 0
        return self.times * self.estimate * len(self.allowed) * (1 - left_out)

    def run(self, seconds: int) -> None:
        for _ in range(seconds // _SECONDS):
            pictures = 30 * _SECONDS
            limited = round(pictures * self.skip_ratio) if self.skip_cause else 0
            self._captured += pictures
            self._limited += limited
            self._uptime += _SECONDS
            self._late += round((pictures - limited) * max(0.0, 1 - 1 / self.load))
            self.admission.learn(self._metrics(min(1.0, self.load) if self.busy is None else self.busy))

    def _metrics(self, busy: float) -> Metrics:
        dropped = Dropped(late=self._late, rate_limit=self._limited)
        row = SourceMetrics(
            state="up", captured_fps=30.0, published_fps=0.0, captured=self._captured, published=0, dropped=dropped,
            in_flight=0, latency=None,
        )  # fmt: skip
        gpu = GpuMetrics(
            name="", memory_used_bytes=None, memory_total_bytes=None, process_memory_bytes=None, utilisation=None,
            decoder_utilisation=round(100 * busy), power_w=None, energy_j=None, reasons={},
        )  # fmt: skip
        return Metrics(
            instance="", index=0, at=0, interval_s=_SECONDS, uptime_s=self._uptime, fps=0.0, latency=None,
            sources=dict.fromkeys(self.allowed, row), process=ProcessMetrics(0.0, 0, 0, 0), gpus=[gpu],
            gpus_reason=None, publisher=PublisherMetrics(0, 0, 0),
        )  # fmt: skip


def test_a_faster_card_gets_back_what_was_left_out_for_nothing() -> None:
    card = Card(0.5, 0.015, 100)
    assert card.skip_ratio > 0.3
    card.run(120)
    assert card.skip_ratio == 0


@pytest.mark.parametrize(("times", "estimate"), [(2.0, 0.012), (1.3, 0.009), (4.0, 0.001)])
def test_a_slower_one_has_time_for_what_it_is_given(times: float, estimate: float) -> None:
    card = Card(times, estimate, 100)
    late_before = card.load > 1
    card.run(180)
    assert card.load <= 0.96
    assert card.load >= 0.9 or card.skip_ratio == 0
    assert late_before == (card.skip_ratio > 0)
    changes = card.changes
    card.run(600)
    assert card.changes == changes


@pytest.mark.parametrize("times", [0.97, 1.0, 1.03])
def test_an_estimate_that_is_right_stays(times: float) -> None:
    card = Card(times, 0.012, 100)
    card.run(600)
    assert card.changes == 0


@pytest.mark.parametrize(("times", "busy"), [(1.0, 0.0), (1.2, 0.5)])
def test_what_cannot_be_is_not_learned(times: float, busy: float) -> None:
    """NVML tells of another card than the one that decodes; or the CPU is what is short."""
    card = Card(times, 0.012, 100)
    card.busy = busy
    before = card.skip_ratio
    card.run(600)
    assert card.skip_ratio == before


def test_sources_that_can_leave_nothing_out_do_not_make_it_slower() -> None:
    """Those that can would be left with less and less."""
    card = Card(1.0, 0.012, 100)
    card.skip_cause = False
    card.run(600)
    assert card.changes == 0


def test_while_sources_come_and_go_nothing_is_learned() -> None:
    card = Card(0.5, 0.0095, 100)
    for number in range(60):
        card.run(10)
        card.add(f"new-{number}")
    assert card.skip_ratio > 0
    card.run(60)
    assert card.skip_ratio == 0


def test_whoever_was_refused_is_let_in_once_the_card_is_known_to_be_faster() -> None:
    card = Card(0.5, 0.015, 60, mode="refuse")
    card.admission.admit("more", 30.0, lambda _: None, _FORMAT)
    card.admission.admit("more still", 30.0, lambda _: None, _FORMAT)
    with pytest.raises(SourceError, match="not admitted"):
        card.add("one too many")
    card.admission.release("more")
    card.admission.release("more still")
    card.run(60)
    for number in range(50):
        card.add(f"later-{number}")
    assert card.load < 0.94
