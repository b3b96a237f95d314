"""The board: freshest frame or every frame, fair, one batch of a source in flight."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from daemon.pipeline.batch import Batch
from daemon.pipeline.board_rules import BoardRules
from daemon.pipeline.frame_board import FrameBoard
from daemon.pipeline.frames import Frame, FrameInfo
from daemon.pipeline.ledger import Ledger
from daemon.system.stop_token import StopToken
from detectors.port import HostImage
from lookout.messages import FrameClock
from tests.support.clock import ManualClock

IMAGE = HostImage(np.zeros((2, 2, 3), np.uint8))


class Board:
    """A board with a shorthand for frames."""

    def __init__(
        self,
        clock: ManualClock,
        depth: int | None = None,
        lanes: int = 1,
        batch: int | None = None,
        *,
        gather: bool = False,
    ) -> None:
        ids = ["a", "b", "c"]
        self.clock, self.ledger = clock, Ledger(ids)
        rules = BoardRules(depth=depth, max_age_ns=10**9, lanes=lanes, batch=batch, gather=gather)
        self.board = FrameBoard(ids, self.ledger, clock, rules)
        self._seq = 0

    def put(self, *sources: str, hold_ns: int = 0) -> bool:
        """Whether there was room for the last."""
        room = True
        for source in sources:
            self.ledger.captured(source)
            now = self.clock.monotonic_ns()
            info = FrameInfo(source, "s", self._seq, None, now, 0, FrameClock("file"), 0, 2, 2)
            room = self.board.put(Frame(info, IMAGE), hold_ns=hold_ns)
            self._seq += 1
        return room

    def take_batch(self, most: int = 8) -> Batch:
        return self.board.take_batch(most, 0)


def _names(batch: Batch) -> list[tuple[str, int]]:
    return [(frame.info.source, frame.info.seq) for frame in batch.frames]


def test_live_keeps_the_newest_and_counts_the_rest(clock: ManualClock) -> None:
    board = Board(clock)
    board.put("a", "a", "a")
    assert _names(board.take_batch()) == [("a", 2)]
    assert board.ledger.totals("a").superseded == 2


def test_what_comes_in_a_burst_waits_for_a_lane_that_is_idle(clock: ManualClock) -> None:
    """Cameras with B-frames send several pictures at once; a lane that is busy for longer has the newest."""
    board, woken = Board(clock), list[str]()
    board.board.listen("a", lambda: woken.append("a"))
    assert board.put("a", hold_ns=25_000_000)
    clock.advance(0.001)
    assert not board.put("a", hold_ns=25_000_000)
    assert _names(board.take_batch()) == [("a", 0)]
    assert woken == ["a"]
    assert board.put("a", hold_ns=25_000_000)
    clock.advance(0.026)
    assert board.put("a", hold_ns=25_000_000)
    assert board.ledger.totals("a").superseded == 1


def test_the_longest_waiting_goes_first_even_when_its_frame_is_replaced(clock: ManualClock) -> None:
    board = Board(clock)
    board.put("a", "b", "a", "c")
    assert _names(board.take_batch(2)) == [("a", 2), ("b", 1)]


def test_lossless_leaves_sources_for_the_other_lane(clock: ManualClock) -> None:
    """A full batch of one lane, with frames of two sources, and meanwhile the third is there for the other."""
    board = Board(clock, depth=4, lanes=2)
    board.put("a", "b", "c", "a", "b", "c", "a", "b", "c")
    assert _names(board.take_batch(4)) == [("a", 0), ("b", 1), ("a", 3), ("b", 4)]
    assert _names(board.take_batch(4)) == [("c", 2), ("c", 5), ("c", 8)]


def test_no_more_are_taken_at_once_than_is_allowed(clock: ManualClock) -> None:
    board = Board(clock, batch=2)
    board.put("a", "b", "c")
    assert _names(board.take_batch(8)) == [("a", 0), ("b", 1)]
    assert _names(board.take_batch(1)) == [("c", 2)]


def test_a_frame_of_several_pictures_takes_as_much_room(clock: ManualClock) -> None:
    """It waits for the next batch if this one has no room, first in the queue; alone it is taken whatever it needs."""
    board = Board(clock)
    board.board.set_pictures({"b": 5})
    board.put("a", "b", "c")
    first = board.take_batch(5)
    assert _names(first) == [("a", 0)]
    assert _names(board.take_batch(6)) == [("b", 1), ("c", 2)]
    board.board.set_pictures({"b": 50, "a": 3})
    board.board.release(first)
    board.put("a")
    assert _names(board.take_batch(6)) == [("a", 3)]


def test_pictures_count_in_lossless_mode_too(clock: ManualClock) -> None:
    board = Board(clock, depth=4)
    board.board.set_pictures({"a": 3})
    board.put("a", "a", "a")
    assert _names(board.take_batch(8)) == [("a", 0), ("a", 1)]
    assert board.ledger.counts()["a"].in_flight == 3


WIDE, TALL = (1280, 736), (384, 640)


def test_a_batch_has_one_input_size(clock: ManualClock) -> None:
    """That of the source that has waited longest; the others keep their order."""
    board = Board(clock)
    board.board.set_sizes({"b": WIDE})
    board.put("a", "b", "c")
    first = board.take_batch()
    assert (_names(first), first.size) == ([("a", 0), ("c", 2)], None)
    board.put("a")  # in flight
    second = board.take_batch()
    assert (_names(second), second.size) == ([("b", 1)], WIDE)
    board.board.release(first)
    board.board.set_sizes({})
    third = board.take_batch()
    assert (_names(third), third.size) == ([("a", 3)], None)


def test_sources_without_room_keep_their_place_among_other_sizes(clock: ManualClock) -> None:
    board = Board(clock, batch=1)
    board.board.set_sizes({"b": WIDE})
    board.put("a", "b", "c")
    assert [_names(board.take_batch())[0][0] for _ in range(3)] == ["a", "b", "c"]


def test_lossless_batches_have_one_input_size(clock: ManualClock) -> None:
    """Each source's frames stay in order."""
    board = Board(clock, depth=4)
    board.board.set_sizes({"a": WIDE, "b": TALL})
    board.put("a", "b", "c", "a", "b", "c")
    batches = [board.take_batch() for _ in range(3)]
    assert [_names(batch) for batch in batches] == [[("a", 0), ("a", 3)], [("b", 1), ("b", 4)], [("c", 2), ("c", 5)]]
    assert [batch.size for batch in batches] == [WIDE, TALL, None]


def test_no_size_starves_and_batches_stay_large(clock: ManualClock) -> None:
    """Ninety sources of one size and ten of another, all with more frames than two lanes take: each has its share."""
    ids = [f"s{number}" for number in range(100)]
    ledger, rng = Ledger(ids), np.random.default_rng(0)
    board = FrameBoard(ids, ledger, clock, BoardRules(None, 10**12, lanes=2, gather=True))
    board.set_sizes(dict.fromkeys(ids[::10], WIDE))

    def show(id: str) -> None:
        ledger.captured(id)
        info = FrameInfo(id, "s", 0, None, clock.monotonic_ns(), 0, FrameClock("file"), 0, 2, 2)
        board.put(Frame(info, IMAGE))

    taken, sizes, under_way = dict.fromkeys(ids, 0), list[tuple[object, int]](), list[Batch]()
    for _ in range(400):
        for id in rng.permutation(ids).tolist():
            show(id)
        under_way.append(board.take_batch(32, 0))
        for frame in under_way[-1].frames:
            taken[frame.info.source] += 1
        sizes.append((under_way[-1].size, len(under_way[-1].frames)))
        if len(under_way) == 2:
            board.release(under_way.pop(0))
    assert min(taken.values()) > 0.8 * max(taken.values())
    assert np.mean([count for size, count in sizes if size == WIDE]) > 8
    assert np.mean([count for size, count in sizes if size is None]) > 25


def test_a_source_in_flight_is_not_taken_again(clock: ManualClock) -> None:
    board = Board(clock)
    board.put("a")
    batch = board.take_batch()
    board.put("a", "b")
    assert _names(board.take_batch()) == [("b", 2)]
    board.board.release(batch)
    assert _names(board.take_batch()) == [("a", 1)]


def test_a_frame_that_waited_too_long_is_stale(clock: ManualClock) -> None:
    board = Board(clock)
    board.put("a")
    clock.advance(2)
    board.put("b")
    assert _names(board.take_batch()) == [("b", 1)]
    assert board.ledger.totals("a").stale == 1


def test_lossless_gives_everything_in_order_and_shares_the_batch(clock: ManualClock) -> None:
    board = Board(clock, depth=4)
    board.put("a", "a", "a", "b")
    first = board.take_batch(3)
    assert _names(first) == [("a", 0), ("b", 3), ("a", 1)]
    board.board.release(first)
    assert _names(board.take_batch()) == [("a", 2)]


def test_lossless_there_is_no_room_and_then_there_is(clock: ManualClock) -> None:
    board = Board(clock, depth=1)
    told: list[str] = []
    board.board.listen("a", lambda: told.append("a"))
    board.put("a")
    assert not board.put("a")
    assert told == []
    batch = board.take_batch()
    assert told == ["a"]
    board.put("a")
    board.board.release(batch)
    assert told == ["a"]  # nobody waits any more
    assert not board.board.is_settled("a")
    board.board.release(board.take_batch())
    assert told == ["a", "a"]
    assert board.board.is_settled("a")


def test_a_closed_board_gives_what_is_left_and_takes_nothing_more(clock: ManualClock) -> None:
    board = Board(clock)
    board.put("a")
    board.board.close()
    board.put("b")
    assert board.ledger.totals("b").shutdown == 1
    assert not board.board.drained
    board.take_batch()
    assert board.board.drained


def test_who_is_retired_takes_nothing_and_calls_another(clock: ManualClock) -> None:
    """Though it had begun to wait before, and is called first."""
    board, retired = Board(clock), StopToken()
    taken: list[list[tuple[str, int]]] = []

    def take(retired: StopToken | None) -> None:
        taken.append(_names(board.board.take_batch(8, 60, retired)))

    first = threading.Thread(target=take, args=(retired,))
    first.start()
    retired.set()
    second = threading.Thread(target=take, args=(None,))
    second.start()
    board.put("a")
    for thread in (first, second):
        thread.join(60)
    assert sorted(taken) == [[], [("a", 0)]]


@pytest.mark.parametrize(("depth", "gather"), [(None, False), (None, True), (3, False)])
def test_nothing_is_lost_between_many_threads(clock: ManualClock, depth: int | None, gather: bool) -> None:
    """Captured = taken + dropped, exactly, with four producers and two takers; and each source in order."""
    board = Board(clock, depth, gather=gather)
    seen: dict[str, list[int]] = {"a": [], "b": [], "c": []}

    def produce(source: str) -> None:
        room = threading.Event()
        board.board.listen(source, room.set)
        for seq in range(500):
            info = FrameInfo(source, "s", seq, None, clock.monotonic_ns(), 0, FrameClock("file"), 0, 2, 2)
            while not board.board.put(Frame(info, IMAGE)):
                assert room.wait(60), "nobody said that there is room"
                room.clear()

    def consume() -> None:
        while not board.board.drained:
            batch = board.board.take_batch(3, 0.01)
            for frame in batch.frames:
                seen[frame.info.source].append(frame.info.seq)
            assert board.board.claim(batch)
            board.board.release(batch)

    producers = [threading.Thread(target=produce, args=(source,)) for source in "abc"]
    consumers = [threading.Thread(target=consume) for _ in range(2)]
    for thread in (*producers, *consumers):
        thread.start()
    for thread in producers:
        thread.join(60)
    board.board.close()
    for thread in consumers:
        thread.join(60)
    for source, seqs in seen.items():
        assert seqs == sorted(seqs)
        dropped = board.ledger.totals(source)
        assert len(seqs) + dropped.superseded + dropped.stale == 500


def test_a_lane_leaves_frames_to_gather_while_another_has_more(clock: ManualClock) -> None:
    """Two of three sources are in flight: the frame of the third waits until as many wait."""
    board = Board(clock, gather=True)
    board.put("a", "b")
    batch = board.take_batch()
    taken: list[Batch] = []
    lane = threading.Thread(target=lambda: taken.append(board.board.take_batch(8, 60.0)))
    lane.start()
    board.put("c")
    lane.join(0.1)
    assert taken == []
    board.board.release(Batch(batch.frames[:1]))
    board.put("a")
    lane.join(60)
    assert _names(*taken) == [("c", 2), ("a", 3)]


def test_what_fills_a_batch_waits_for_no_more(clock: ManualClock) -> None:
    """A model of batches of one: two sources in flight, and another lane takes the third at once."""
    board = Board(clock, gather=True, batch=1)
    board.put("a", "b", "c")
    board.take_batch()
    board.take_batch()
    taken: list[Batch] = []
    lane = threading.Thread(target=lambda: taken.append(board.board.take_batch(8, 60.0)), daemon=True)
    lane.start()
    lane.join(60)
    assert _names(*taken) == [("c", 2)]


def test_no_frame_waits_for_a_lane_that_takes_too_long(clock: ManualClock) -> None:
    board = Board(clock, gather=True)
    board.put("a", "b")
    board.take_batch()
    board.put("c")
    assert _names(board.board.take_batch(8, 0.01)) == [("c", 2)]
