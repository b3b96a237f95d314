"""The queue of looks: bounded, fair, and each look accounted for."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from daemon.classification.crops import Crop, CropQueue
from daemon.classification.votes import AttributeVotes, rules_of
from daemon.config.model import ClassifierConfig
from detectors.port import HostImage
from lookout.messages import ClassifierMetrics
from tests.analytics.feed import frame_at

RULES = rules_of(ClassifierConfig(name="color", path=Path("color.onnx"), wanted=["car"]))
IMAGE = HostImage(np.zeros((4, 4, 3), np.uint8))


def _crops(count: int, source: str = "cam") -> list[Crop]:
    looks = [
        Crop(frame_at(0, 0, source=source), number, "car", (0.0, 0.0, 9.0, 9.0), AttributeVotes(RULES))
        for number in range(count)
    ]
    for look in looks:
        look.ballot.request(100.0, 0)
    return looks


def _put(queue: CropQueue, looks: list[Crop]) -> list[Crop]:
    taken = queue.reserve(looks)
    queue.put(taken, [IMAGE] * len(taken))
    return taken


def _adds_up(found: ClassifierMetrics) -> bool:
    dropped = found.dropped
    lost = dropped.busy + dropped.failed + dropped.removed + dropped.shutdown
    return found.requested == found.classified + lost + found.pending


def test_looks_come_out_in_order_and_are_counted() -> None:
    queue = CropQueue(8)
    looks = _put(queue, _crops(3))
    assert queue.get(2, 0) == looks[:2]
    assert all(queue.complete(look) for look in looks[:2])
    assert queue.get(2, 0) == looks[2:]
    assert queue.get(2, 0) == []
    found = queue.metrics()
    assert (found.requested, found.classified, found.pending) == (3, 2, 1)
    assert looks[0].image is None


def test_what_finds_no_room_is_dropped_as_busy_and_due_again() -> None:
    queue = CropQueue(4)
    looks = _crops(6)
    assert _put(queue, looks) == looks[:4]
    assert queue.metrics().dropped.busy == 2
    assert [look.ballot.is_pending for look in looks] == [True] * 4 + [False] * 2
    queue.get(4, 0)
    assert queue.reserve(_crops(1)) == []  # looks under way have their room until they are done


def test_a_part_that_was_not_copied_is_dropped() -> None:
    queue = CropQueue(4)
    looks = queue.reserve(_crops(2))
    queue.put(looks, [IMAGE, None])
    assert queue.get(4, 0) == looks[:1]
    assert queue.metrics().dropped.busy == 1


def test_one_source_leaves_room_for_the_others() -> None:
    """Alone it has all of the room; beside others half of it at most."""
    queue = CropQueue(8)
    many = _put(queue, _crops(20, "busy"))
    assert len(many) == 8
    for look in queue.get(2, 0):
        queue.complete(look)
    assert len(_put(queue, _crops(2, "quiet"))) == 2
    for look in queue.get(2, 0):
        queue.complete(look)
    assert _put(queue, _crops(4, "busy")) == []  # it still has half
    assert len(_put(queue, _crops(2, "quiet"))) == 2


def test_a_result_that_comes_after_the_end_means_nothing() -> None:
    queue = CropQueue(4)
    (look,) = _put(queue, _crops(1))
    queue.get(1, 0)
    queue.close("shutdown")
    assert not queue.complete(look)
    found = queue.metrics()
    assert (found.classified, found.dropped.shutdown, found.pending) == (0, 1, 0)
    assert queue.reserve(_crops(2)) == []
    assert queue.metrics().requested == 1  # nothing is asked of a closed queue
    queue.close("failed", "too late")
    assert queue.metrics().failure is None


def test_a_removed_source_takes_its_looks_along() -> None:
    queue = CropQueue(8)
    _put(queue, _crops(2, "gone"))
    stays = _put(queue, _crops(1, "stays"))
    queue.forget("gone")
    assert queue.get(8, 0) == stays
    found = queue.metrics()
    assert (found.dropped.removed, found.pending) == (2, 1)


def test_accounts_add_up_whatever_happens() -> None:
    """Random histories of every verb."""
    for seed in range(200):
        chance, queue, held = random.Random(seed), CropQueue(6), list[Crop]()
        for _ in range(40):
            verb = chance.choice(("put", "put", "take", "finish", "forget", "half"))
            source = chance.choice("abc")
            if verb == "put":
                _put(queue, _crops(chance.randint(1, 4), source))
            elif verb == "half":
                taken = queue.reserve(_crops(2, source))
                queue.put(taken, [None] * len(taken))
            elif verb == "take":
                held += queue.get(chance.randint(1, 4), 0)
            elif verb == "finish" and held:
                queue.complete(held.pop())
            elif verb == "forget":
                queue.forget(source)
            found = queue.metrics()
            assert _adds_up(found)
            assert 0 <= found.pending <= 6
        queue.close(chance.choice(("failed", "shutdown")))
        assert _adds_up(queue.metrics())
        assert queue.metrics().pending == 0
