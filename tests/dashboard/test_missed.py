"""What did not come is noticed, and a source that several daemons tell of is shown once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from daemon.clock import SystemClock
from daemon.dashboard.hub import Hub
from daemon.dashboard.viewers import Viewer
from daemon.dashboard.watched import Facts, FleetSource
from daemon.peers.addresses import DaemonAddress
from daemon.peers.link import Arrived
from lookout.messages import Owner, State, Status, encoder, topic
from tests.support.clock import ManualClock


def _told(
    source: str, index: int, *, instance: str = "one", state: State = "up", owner: Owner | None = None
) -> Arrived:
    status = Status(instance=instance, source=source, session="s", index=index, at=0, state=state, owner=owner)
    return Arrived(topic("status", source), encoder("json")(status))


def test_messages_that_did_not_come_are_counted_and_told() -> None:
    asyncio.run(_miss())


async def _miss() -> None:
    hub, viewer = Hub([DaemonAddress("here", None, None)], SystemClock()), Viewer(SystemClock())
    hub.join(viewer)
    daemon = hub.daemons["here"]
    daemon.stale = False
    for index in (7, 8, 12, 13):
        hub._on_message(daemon, _told("cam", index))
    for index in (3, 5):  # another source has numbers of its own
        hub._on_message(daemon, _told("yard", index))
    hub._on_message(daemon, _told("cam", 0, instance="two"))  # begins again
    rows = msgspec.json.decode(await viewer.next())
    assert [row["messages"] for row in rows if row["kind"] == "missed"] == [3, 1]
    assert (daemon.entry()["missed"], daemon.stale) == (4, True)


def _fleet(*members: str) -> tuple[Hub, Callable[[str, str, int], None]]:
    """A hub with members of one fleet, all up; and what says that one of them owns a source since an epoch."""
    hub = Hub([DaemonAddress(name, None, None) for name in members], ManualClock())
    for daemon in hub.daemons.values():
        daemon.state, daemon.facts = "up", Facts(fleet="yard")

    def own(member: str, source: str, epoch: int) -> None:
        owner = Owner(member, epoch, "yard")
        hub._on_message(hub.daemons[member], _told(source, 0, instance=member, owner=owner))

    return hub, own


def _shown(hub: Hub) -> dict[str, tuple[str, str]]:
    rows = [(row["id"], row["daemon"], row["state"]) for row in hub.sources()]
    assert len({row[0] for row in rows}) == len(rows)
    return {id: (daemon, state) for id, daemon, state in rows}


@pytest.mark.parametrize("order", [("barn", "shed"), ("shed", "barn")])
def test_a_source_of_a_fleet_is_shown_as_its_owner_has_it(order: tuple[str, str]) -> None:
    hub, own = _fleet(*order)
    for number in range(3):
        own("barn", f"cam-{number}", number)
    assert set(_shown(hub).values()) == {("barn", "up")}
    hub._on_state("barn", "away", "it does not answer")
    assert set(_shown(hub).values()) == {("barn", "away")}  # nobody has them yet
    assert all("does not answer" in row["reason"] for row in hub.sources())
    own("shed", "cam-0", 10)
    own("shed", "cam-1", 11)
    assert _shown(hub) == {"cam-0": ("shed", "up"), "cam-1": ("shed", "up"), "cam-2": ("barn", "away")}
    # One more is removed from the fleet, and one waits for room.
    hub.daemons["shed"].in_fleet = {id: FleetSource(id, "owned", "shed") for id in ("cam-0", "cam-1")}
    assert _shown(hub).keys() == {"cam-0", "cam-1"}
    hub.daemons["shed"].in_fleet["cam-2"] = FleetSource("cam-2", "waiting", None, "no member has room")
    (reason,) = [row["reason"] for row in hub.sources() if row["id"] == "cam-2"]
    assert "barn, which had it, is away" in reason
    assert "no member has room" in reason
    hub._on_state("barn", "up", None)  # what it had before it was lost is older
    assert _shown(hub)["cam-0"] == ("shed", "up")


def test_daemons_without_a_fleet_may_have_sources_of_the_same_name() -> None:
    hub, own = _fleet("barn", "shed")
    for daemon in hub.daemons.values():
        daemon.facts = Facts()
    own("barn", "door", 1)
    own("shed", "door", 2)
    assert [(row["daemon"], row["id"]) for row in hub.sources()] == [("barn", "door"), ("shed", "door")]
