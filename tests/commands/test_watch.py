"""`lookout watch`: what it says of the boxes of a source."""

from __future__ import annotations

import msgspec

from daemon.commands.watch import View
from lookout.client import Subscriber
from lookout.messages import Detection
from tests.daemon.test_messages import MESSAGE

_BOX = (1.0, 2.0, 3.0, 4.0)


def _tracked(id: int, label: str = "truck") -> Detection:
    """A box of a track that is a car, whatever the label of the box."""
    return Detection(label, 0, 0.871, _BOX, id, (0.0, 0.0), 5, "car")


def _shown(*found: Detection) -> str:
    view = View("here")
    view.add(msgspec.structs.replace(MESSAGE, detections=[*found]))
    with Subscriber("tcp://127.0.0.1:1") as subscriber:
        (*_, sees) = view.render(subscriber).columns
        (cell,) = sees.cells
    return str(cell)


def test_boxes_without_tracks_are_counted() -> None:
    boxes = [Detection(label, 0, 0.5, _BOX) for label in ("dog", "car", "dog")]
    assert _shown(*boxes) == "1 car, 2 dog"
    assert _shown() == "-"


def test_tracks_are_shown_one_by_one() -> None:
    """By id; boxes without one come last."""
    untracked = Detection("dog", 0, 0.5, _BOX)
    assert _shown(untracked, _tracked(12), _tracked(3)) == "#3 car 0.87, #12 car 0.87, 1 dog"


def test_a_crowd_is_counted() -> None:
    """Beyond the six oldest tracks."""
    names = ", ".join(f"#{id} car 0.87" for id in range(1, 7))
    assert _shown(*(_tracked(id) for id in range(20, 0, -1))) == f"{names}, 14 car"
