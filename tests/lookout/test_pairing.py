"""Pictures with the boxes of that very picture."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from lookout.messages import Detections
from lookout.pairing import Pairing
from lookout.testing import Publisher
from tests.support.daemon import PATIENCE_S

Said = list[tuple[str, int | None]]


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher(timeout_s=PATIENCE_S) as found:
        yield found


@pytest.fixture
def template(publisher: Publisher) -> Detections:
    """A message, of which tests make others."""
    publisher.send_raw = lambda *_: None  # type: ignore[method-assign] # nobody listens
    return publisher.source("door").detections()


class Bench:
    """What a pairing has given out: pictures, which are named by session and time, and the numbers of messages."""

    def __init__(self, template: Detections, limit: int = 60) -> None:
        self._template, self._pairing = template, Pairing[str](limit)

    def picture(self, session: str, pts: int | None) -> Said:
        self._pairing.add_picture(session, pts, f"{session}{pts}")
        return self._ready()

    def message(self, session: str, pts: int | None, seq: int) -> Said:
        self._pairing.add_message(msgspec.structs.replace(self._template, session=session, pts=pts, seq=seq))
        return self._ready()

    def _ready(self) -> Said:
        return [(picture, message.seq if message else None) for picture, message in self._pairing.ready()]


def test_a_picture_waits_for_its_message(template: Detections) -> None:
    bench = Bench(template)
    assert [bench.picture("a", 0), bench.picture("a", 40)] == [[], []]
    assert bench.message("a", 0, 7) == [("a0", 7)]
    assert bench.message("a", 40, 8) == [("a40", 8)]


def test_a_frame_that_the_daemon_dropped_is_shown_without_boxes(template: Detections) -> None:
    """As soon as a later message is here, and not before."""
    bench = Bench(template)
    for pts in (0, 40, 80, 120):
        assert bench.picture("a", pts) == []
    assert bench.message("a", 80, 2) == [("a0", None), ("a40", None), ("a80", 2)]
    assert bench.message("a", 120, 3) == [("a120", 3)]


def test_a_message_that_comes_first_waits_too(template: Detections) -> None:
    """A decoder that shows pictures late is behind the daemon."""
    bench = Bench(template)
    assert [bench.message("a", pts, pts) for pts in (0, 40, 80)] == [[], [], []]
    assert bench.picture("a", 40) == [("a40", 40)]  # watching began in between
    assert bench.picture("a", 80) == [("a80", 80)]


def test_a_new_connection_begins_anew(template: Detections) -> None:
    """Its times may be smaller. Pictures of the former one that have no message wait for none."""
    bench = Bench(template)
    assert bench.message("old", 900, 9) == []  # of before, without a picture
    assert bench.picture("a", 0) == []
    assert bench.message("a", 0, 0) == [("a0", 0)]
    assert bench.picture("a", 40) == []
    assert bench.picture("b", 0) == []
    assert bench.message("b", 0, 1) == [("a40", None), ("b0", 1)]


def test_pictures_do_not_gather_without_end(template: Detections) -> None:
    bench = Bench(template, limit=2)
    assert [bench.picture("a", pts) for pts in (0, 40, 80, 120)] == [[], [], [("a0", None)], [("a40", None)]]
    for number in range(100):
        assert bench.message("another", number, number) == []
    assert bench.message("a", 80, 2) == [("a80", 2)]


def test_a_picture_without_a_time_waits_for_nothing(template: Detections) -> None:
    bench = Bench(template)
    assert bench.message("a", None, 1) == []
    assert bench.picture("a", None) == [("aNone", None)]
