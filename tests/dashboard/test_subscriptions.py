"""What viewers ask for must not end the page's one connection to a daemon, which all of them share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from daemon.peers.subscriptions import MAX_TOPICS, Subscriptions
from lookout.messages import topic
from tests.support.page import Page, address_of
from tests.support.served import Served

_S = 1_000_000_000


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with Served(tmp_path_factory.mktemp("subscriptions")) as served, Page([address_of(served)]) as found:
        yield found


@pytest.mark.parametrize(
    "names",
    [
        ["n" * 8000],
        ["none"],
        ["", "/", "street-0/", "\x00", "ä" * 3000, "a/b", "..", " ", "*"],
        [f"none-{number}" for number in range(1000)],
    ],
    ids=["endless", "unknown", "odd", "many"],
)
def test_one_viewer_asks_for_what_there_is_not_and_the_others_go_on(page: Page, names: list[str]) -> None:
    (daemon,) = page.dashboard.hub.daemons.values()
    since = daemon.since_s
    with page.socket("/api/feed") as honest, page.socket("/api/feed") as hostile:
        honest.send({"sources": [["here", "street-0"]]})
        message = first = honest.until("detections")["message"]
        hostile.send({"sources": [["here", name] for name in names] + [["nowhere", "x"]]})
        while message["seq"] < first["seq"] + 8:
            message = honest.until("detections")["message"]
            assert (daemon.state, daemon.since_s) == ("up", since)
    assert daemon.tracks.keys() <= {"street-0", "street-1"}


def _names(*numbers: int) -> list[bytes]:
    return [topic("detections", f"cam-{number}") for number in numbers]


def test_a_source_is_followed_once_the_daemon_tells_of_it(page: Page) -> None:
    with page.socket("/api/feed") as feed:
        feed.send({"sources": [["here", "new"]]})
        new = {"id": "new", "type": "synthetic", "width": 64, "height": 48, "fps": 5}
        assert page.client.post("/api/sources/here", json=new).is_success
        assert feed.until("detections")["message"]["source"] == "new"
        assert page.client.delete("/api/sources/here/new").is_success


def test_viewers_that_come_and_go_change_nothing() -> None:
    """A topic is kept for ten seconds, unless it is no detections'."""
    subscriptions = Subscriptions(topic("detections"), 0)
    assert subscriptions.change([*_names(1, 2), b"packets/x/"], 0) == ([], [*_names(1, 2), b"packets/x/"])
    for step in range(50):
        wanted = _names(1) if step % 2 else _names(1, 2)
        assert subscriptions.change(wanted, step * _S // 5)[1] == []
    assert b"packets/x/" not in subscriptions.topics
    assert subscriptions.change(_names(1), 21 * _S) == (_names(2), [])


def test_changes_are_as_few_as_a_daemon_allows() -> None:
    """It cuts off a subscriber of more than 2,000 at once, or 100 a second."""
    subscriptions = Subscriptions(b"detections/", 0)
    changes = 0
    for step in range(600):  # a minute
        wanted = _names(*range(step * 300 % 3000, step * 300 % 3000 + 300))
        ended, begun = subscriptions.change(wanted, step * _S // 10)
        changes += len(ended) + len(begun)
        assert len(subscriptions.topics) <= MAX_TOPICS
        assert changes <= 500 + step * 5 + 1
    assert changes > 2000
    for step in range(600, 1200):
        subscriptions.change(_names(7, 1), step * _S // 10)
    assert subscriptions.topics == {*_names(7, 1)}


def test_the_most_important_come_first() -> None:
    subscriptions = Subscriptions(b"detections/", 0)
    for second in range(60):
        subscriptions.change(_names(*range(5000)), second * _S)
    assert subscriptions.topics == {*_names(*range(MAX_TOPICS))}
    for second in range(60, 120):
        subscriptions.change(_names(9999, *range(5000)), second * _S)
        assert len(subscriptions.topics) <= MAX_TOPICS
    assert subscriptions.topics == {*_names(9999, *range(MAX_TOPICS - 1))}
