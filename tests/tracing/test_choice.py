"""Which frames are traced: one of so many, those that are slow or dropped, and never more than ten a second."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from daemon.pipeline.ledger import Ledger
from daemon.tracing.record import LostFrame, SentFrame
from daemon.tracing.tracing import Tracing
from tests.support.clock import ManualClock
from tests.tracing.parts import exporter, result

SLOW_NS, QUICK_NS = 300_000_000, 5_000_000


class Chooser:
    """Tracing whose traces wait, because nobody sends them."""

    def __init__(self, every: int = 1000) -> None:
        self.clock, self.ledger = ManualClock(10_000_000_000), Ledger()
        self.exporter = exporter("http://127.0.0.1:1", clock=self.clock, every=every)
        for source in ("cam", "yard", "hall"):
            self.ledger.add(source)
        settings = self.exporter.settings
        self.tracing = Tracing(settings, self.ledger.accounts, self.exporter, self.clock)
        self.seq = 0

    def send(self, total_ns: int = QUICK_NS) -> str | None:
        self.seq += 1
        return self.tracing.choose(*result(self.seq, self.clock.monotonic_ns(), total_ns))

    def drop(self, cause: str, count: int = 1, source: str = "cam") -> None:
        for _ in range(count):
            self.seq += 1
            self.ledger.captured(source)
            self.ledger.dropped(source, self.seq, cause, captured_ns=self.clock.monotonic_ns() - 1000, decode=300)

    def look(self) -> None:
        """As the monitor does, every second."""
        self.clock.advance(1)
        self.tracing.observe(self.ledger.drain())

    @property
    def limit(self) -> int:
        return self.tracing.figures.dropped["limit"]

    @property
    def made(self) -> int:
        figures = self.tracing.figures
        return figures.waiting + figures.dropped["queue_full"]


def test_one_of_so_many_is_traced() -> None:
    """On average; and of sources that take turns each has its share."""
    chooser, shares = Chooser(every=50), Counter[int]()
    for number in range(100_000):
        chooser.clock.advance(0.01)
        if chooser.send() is not None:
            shares[number % 25] += 1
    assert 1_600 < shares.total() < 2_400
    assert len(shares) == 25
    assert max(shares.values()) < 3 * shares.total() / 25
    assert (chooser.made, chooser.limit) == (shares.total(), 0)


def test_with_one_of_one_every_frame_is_traced() -> None:
    chooser = Chooser(every=1)
    made = []
    for _ in range(50):
        chooser.clock.advance(0.2)
        made.append(chooser.send())
    assert all(text and re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", text) for text in made)
    assert len(set(made)) == 50


def test_slow_frames_are_traced_and_others_are_not() -> None:
    chooser = Chooser(every=1_000_000)
    for _ in range(20):
        chooser.clock.advance(0.5)
        assert chooser.send(SLOW_NS) is not None
        assert chooser.send(QUICK_NS) is None
    assert (chooser.made, chooser.limit) == (20, 0)
    reasons = {record.reason for record in chooser.exporter.waiting if isinstance(record, SentFrame)}
    assert reasons == {"slow"}


@pytest.mark.parametrize("every", [1, 100])
def test_there_are_never_more_than_ten_a_second(every: int) -> None:
    """Every frame is slow, and as many are dropped: what is left out is counted."""
    chooser, times = Chooser(every), list[int]()
    sent = dropped = 0
    for _ in range(30):
        for _ in range(200):
            before = chooser.made
            chooser.send(SLOW_NS)
            times += [chooser.clock.monotonic_ns()] * (chooser.made - before)
            chooser.clock.advance(0.005)
        sent += 200
        chooser.drop("superseded", 100)
        dropped += 100
        before = chooser.made
        chooser.tracing.observe(chooser.ledger.drain())
        times += [chooser.clock.monotonic_ns()] * (chooser.made - before)
    assert max(sum(at <= other < at + 10**9 for other in times) for at in times) <= 10
    assert len(times) > 30 * 5
    assert chooser.made + chooser.limit == sent + dropped
    kinds = Counter(type(record) for record in chooser.exporter.waiting)
    assert kinds[LostFrame] > 15
    assert kinds[SentFrame] > 15


def test_slow_frames_leave_room_for_samples() -> None:
    chooser = Chooser(every=100)
    for _ in range(4_000):
        chooser.clock.advance(0.005)
        chooser.send(SLOW_NS)
    reasons = Counter(record.reason for record in chooser.exporter.waiting if isinstance(record, SentFrame))
    assert reasons["sampled"] > 10
    assert reasons["slow"] > 100


def test_a_rare_cause_is_not_lost_among_many() -> None:
    chooser = Chooser()
    chooser.drop("superseded", 5_000)
    chooser.drop("detector_error", source="yard")
    chooser.drop("fenced", 3, source="hall")
    chooser.look()
    rows = [record for record in chooser.exporter.waiting if isinstance(record, LostFrame)]
    found = Counter((record.cause, record.source) for record in rows)
    assert found == {("detector_error", "yard"): 1, ("fenced", "hall"): 3, ("superseded", "cam"): 6}
    assert chooser.limit == 5_004 - 10
    assert {(row.decode, row.captured_ns) for row in rows} == {(300, 10_000_000_000 - 1000)}


def test_a_rate_that_was_asked_for_is_no_reason() -> None:
    chooser = Chooser()
    chooser.drop("rate_limit", 50)
    chooser.look()
    chooser.drop("stale")
    chooser.look()
    assert (chooser.made, chooser.limit) == (1, 0)


def test_a_picture_without_a_time_is_told_when_it_is_found() -> None:
    chooser = Chooser()
    for seq in range(3):
        chooser.ledger.captured("cam")
        chooser.ledger.dropped("cam", seq, "decode_error")
    chooser.look()
    rows = [record for record in chooser.exporter.waiting if isinstance(record, LostFrame)]
    assert {record.captured_ns for record in rows} == {chooser.clock.monotonic_ns()}
    assert len({record.ids.trace for record in rows}) == 3


def test_times_are_of_this_host_whatever_the_camera_says() -> None:
    """A camera's own clock is in `captured_at`; spans have one offset from monotonic time."""
    chooser = Chooser(every=1)
    chooser.clock.step(3600)  # the time of day is set
    chooser.send()
    (record,) = chooser.exporter.waiting
    assert record.captured_ns + record.offset_ns == chooser.clock.utc_ns() - QUICK_NS
