"""The accounts: exact, with every thread at work at once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from daemon.pipeline.drop_causes import CAUSES
from daemon.pipeline.frames import FrameInfo
from daemon.pipeline.ledger import Counts, Ledger
from lookout.messages import FrameClock, Latency

_FRAMES = 4000


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_packets_that_are_passed_over_are_counted_by_kind() -> None:
    """Beside the frames; a source that comes back goes on with its account."""
    ledger = Ledger(["a", "b"])
    ledger.passed_over("a", {"no_picture": 2})
    ledger.passed_over("a", {"no_picture": 1, "other_video": 5})
    assert ledger.counts_of("a").passed_over == {"no_picture": 3, "other_video": 5}
    assert ledger.counts_of("b").passed_over == {}
    ledger.remove("a")
    ledger.add("a")
    assert ledger.counts()["a"].passed_over == {"no_picture": 3, "other_video": 5}


def test_no_frame_is_lost_from_the_accounts_while_they_are_read() -> None:
    """Two sources are captured, some of their frames published and others dropped, while somebody drains and counts."""
    sources = ["a", "b"]
    ledger, done = Ledger(sources), threading.Event()
    rows, negative = [ledger.drain()], list[Counts]()

    def capture(source: str) -> None:
        for seq in range(_FRAMES):
            ledger.captured(source)
            if seq % 2:
                ledger.dropped(source, seq, "superseded")

    def publish() -> None:
        for seq in range(0, _FRAMES, 2):
            for source in sources:
                info = FrameInfo(source, "s", seq, None, 0, 0, FrameClock("file"), 0, 2, 2)
                ledger.add_rows([(ledger.published(source), info, Latency(1, 2, 3, 4, 5, 6))])

    def read() -> None:
        while not done.is_set():
            rows.append(ledger.drain())
            negative.extend(count for count in ledger.counts().values() if count.captured < count.dropped.superseded)

    workers = [threading.Thread(target=capture, args=(source,)) for source in sources]
    workers.append(threading.Thread(target=publish))
    reader = threading.Thread(target=read)
    for thread in (reader, *workers):
        thread.start()
    for thread in workers:
        thread.join(60)
    done.set()
    reader.join(60)
    rows.append(ledger.drain())
    lost = CAUSES.index("superseded") + 1
    for index, source in enumerate(sources):
        count = ledger.counts()[source]
        assert (count.captured, count.published, count.dropped.superseded) == (_FRAMES, _FRAMES // 2, _FRAMES // 2)
        mine = [part[part["source"] == index] for part in rows]
        assert sum((part["dropped"] == 0).sum() for part in mine) == _FRAMES // 2
        assert sum((part["dropped"] == lost).sum() for part in mine) == _FRAMES // 2
    assert negative == []
