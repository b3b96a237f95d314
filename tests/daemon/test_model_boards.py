"""The boards of several models: a frame has an account at each model that is to look at it, and each adds up."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from daemon.pipeline.batch import Batch
from daemon.pipeline.board_rules import BoardRules
from daemon.pipeline.drop_causes import GiveUp
from daemon.pipeline.frame_board import FrameBoard
from daemon.pipeline.frames import Frame, FrameInfo
from daemon.pipeline.ledger import Counts, Ledger
from daemon.pipeline.model_boards import ModelBoards
from daemon.sources.leases import BufferLease
from detectors.port import HostImage
from lookout.messages import FrameClock
from tests.support.clock import ManualClock

IMAGE = HostImage(np.zeros((2, 2, 3), np.uint8))


def accounts(source: str, *models: str) -> dict[str, str]:
    return {model: f"{source}/{model}" for model in models}


LOOKS = {"one": ("a",), "two": ("b",), "both": ("a", "b")}


@dataclass
class Boards:
    """Two boards and their sources."""

    clock: ManualClock
    depth: int | None = None
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        for source, models in LOOKS.items():
            self.ledger.add(source, accounts(source, *models))
        rules = BoardRules(depth=self.depth, max_age_ns=10**9)
        sources = {model: [source for source, own in LOOKS.items() if model in own] for model in "ab"}
        self.each = {model: FrameBoard(own, self.ledger, self.clock, rules) for model, own in sources.items()}
        self.all = ModelBoards(self.each, self.ledger)

    def frame(self, source: str, seq: int, image: HostImage = IMAGE) -> Frame:
        now = self.clock.monotonic_ns()
        return Frame(FrameInfo(source, "s", seq, None, now, 0, FrameClock("file"), 0, 2, 2), image)

    def put(self, source: str, seq: int, **more: Any) -> bool:
        self.ledger.captured(source)
        return self.all.put(self.frame(source, seq), **more)

    def take(self, model: str) -> Batch:
        batch = self.each[model].take_batch(8, 0)
        self.each[model].claim(batch)
        return batch

    def publish(self, model: str, batch: Batch) -> None:
        for frame in batch.frames:
            self.ledger.published(frame.info.account or frame.info.source)
        self.each[model].release(batch)

    def counts(self, source: str) -> dict[str, Counts]:
        return self.ledger.counts_by_model()[source]


def _seqs(batch: Batch) -> list[tuple[str, int]]:
    return [(frame.info.source, frame.info.seq) for frame in batch.frames]


def test_a_frame_goes_to_the_models_of_its_source(clock: ManualClock) -> None:
    boards = Boards(clock)
    for source in LOOKS:
        assert boards.put(source, 0)
    first, second = boards.take("a"), boards.take("b")
    assert _seqs(first) == [("one", 0), ("both", 0)]
    assert _seqs(second) == [("two", 0), ("both", 0)]
    assert [frame.info.account for frame in (*first.frames, *second.frames)] == ["one/a", "both/a", "two/b", "both/b"]
    boards.publish("a", first)
    assert {model: (row.published, row.in_flight) for model, row in boards.counts("both").items()} == {
        "a": (1, 0),
        "b": (0, 1),
    }
    assert boards.ledger.counts()["both"].captured == 2  # a frame counts once for each model


def test_a_slow_model_takes_nothing_from_a_fast_one(clock: ManualClock) -> None:
    """Newer frames replace older ones where they wait, and nowhere else."""
    boards = Boards(clock)
    for seq in range(5):
        boards.put("both", seq)
        boards.publish("a", boards.take("a"))
    assert _seqs(boards.take("b")) == [("both", 4)]
    counts = boards.counts("both")
    assert (counts["a"].published, counts["a"].dropped.superseded) == (5, 0)
    assert (counts["b"].published, counts["b"].dropped.superseded, counts["b"].in_flight) == (0, 4, 1)


def test_a_frame_that_no_model_saw_counts_for_each(clock: ManualClock) -> None:
    boards = Boards(clock)
    boards.ledger.captured("both")
    boards.ledger.dropped("both", 0, "decode_error")
    assert [row.dropped.decode_error for row in boards.counts("both").values()] == [1, 1]
    assert [row.in_flight for row in boards.counts("both").values()] == [0, 0]


def test_lossless_waits_until_both_have_room(clock: ManualClock) -> None:
    """So a frame is on both boards or on none, and is taken once by each."""
    boards, woken = Boards(clock, depth=2), list[str]()
    boards.all.listen("both", lambda: woken.append("both"))
    assert boards.put("both", 0)
    assert boards.put("both", 1)
    assert not boards.put("both", 2)
    boards.publish("a", boards.take("a"))
    assert not boards.all.put(boards.frame("both", 2))  # the other is full
    assert woken
    assert not boards.all.is_settled("both")
    boards.publish("b", boards.take("b"))
    assert boards.all.put(boards.frame("both", 2))
    for model in "ab":
        batch = boards.take(model)
        assert _seqs(batch) == [("both", 2)]
        boards.publish(model, batch)
    assert boards.all.is_settled("both")
    assert [(row.captured, row.published, row.in_flight) for row in boards.counts("both").values()] == [(3, 3, 0)] * 2


@pytest.mark.parametrize("give_up", ["shutdown", "removed"])
def test_a_frame_that_is_given_up_is_counted_where_it_found_no_room(clock: ManualClock, give_up: GiveUp) -> None:
    boards = Boards(clock, depth=1)
    boards.put("both", 0)
    boards.publish("a", boards.take("a"))
    assert boards.put("both", 1, give_up=give_up)
    counts = boards.counts("both")
    assert getattr(counts["a"].dropped, give_up) == 0
    assert getattr(counts["b"].dropped, give_up) == 1
    assert _seqs(boards.take("a")) == [("both", 1)]


def test_frames_of_a_removed_source_are_counted_at_each_model(clock: ManualClock) -> None:
    boards = Boards(clock)
    boards.put("both", 0)
    boards.all.remove("both")
    boards.put("both", 1)
    boards.all.put_all([boards.frame("both", 2), boards.frame("one", 0)])
    assert [row.dropped.removed for row in boards.counts("both").values()] == [3, 3]
    assert _seqs(boards.take("a")) == [("one", 0)]


def test_the_end_of_the_time_to_stop_counts_on_each_board(clock: ManualClock) -> None:
    boards = Boards(clock, depth=4)
    boards.all.put_all([boards.frame("both", 0), boards.frame("both", 1)])
    for _ in range(2):
        boards.ledger.captured("both")
    boards.take("a")
    for board in boards.each.values():
        board.close()
        board.abandon()
    assert [row.dropped.shutdown for row in boards.counts("both").values()] == [0, 2]


def test_a_picture_is_free_when_both_models_are_through(clock: ManualClock) -> None:
    boards, free = Boards(clock), SimpleQueue[int]()
    pixels = np.zeros((2, 2, 3), np.uint8)
    image = HostImage(pixels)
    lease = BufferLease(7, free)
    frame = boards.frame("both", 0, _Leased(pixels, lease))
    boards.all.put(frame)
    del frame, image, lease
    for model in "ab":
        assert free.qsize() == 0
        batch = boards.take(model)
        boards.publish(model, batch)
        del batch
    gc.collect()
    assert free.qsize() == 1


class _Leased(HostImage):
    def __init__(self, pixels: np.ndarray[Any, np.dtype[np.uint8]], lease: BufferLease[int]) -> None:
        object.__setattr__(self, "bgr", pixels)
        object.__setattr__(self, "lease", lease)


def test_a_source_that_gets_another_model_goes_on_in_order(clock: ManualClock) -> None:
    """Its frames wait for the last ones of the model before, and its numbers go on."""
    boards = Boards(clock, depth=4)
    boards.put("one", 0)
    last = boards.take("a")
    boards.all.remove("one")
    boards.ledger.remove("one")
    assert boards.ledger.add("one", accounts("one", "b")) == 1
    boards.all.add("one")
    boards.put("one", 1)
    assert boards.take("b").frames == []
    boards.publish("a", last)
    assert _seqs(boards.take("b")) == [("one", 1)]
    boards.ledger.remove("one")
    assert boards.ledger.add("one", accounts("one", "a", "b")) == 2
    assert [row.captured for row in boards.counts("one").values()] == [1, 1]
    boards.ledger.captured("one")
    boards.ledger.remove("one")
    assert boards.ledger.add("one", accounts("one", "b")) == 3
    assert boards.counts("one")["b"].captured == 2
