"""A page in front of daemons that share sources: late messages of an earlier owner are left out and counted."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from daemon.clock import SystemClock
from daemon.dashboard.hub import Hub
from daemon.dashboard.viewers import Selection, Viewer
from daemon.peers.addresses import DaemonAddress
from daemon.peers.link import Arrived
from lookout.messages import Detections, Encoding, Owner, Status, encoder, topic
from tests.daemon.test_messages import MESSAGE


def _arrived(message: Status | Detections, encoding: Encoding) -> Arrived:
    kind = message.schema.partition(".")[2].partition("/")[0]
    return Arrived(topic(kind, message.source), encoder(encoding)(message))


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_lower_epochs_are_left_out(encoding: Encoding) -> None:
    asyncio.run(_show(encoding))


async def _show(encoding: Encoding) -> None:
    hub = Hub([DaemonAddress(name, None, None) for name in ("old", "new", "other")], SystemClock())
    viewer = Viewer(SystemClock())
    hub.join(viewer)
    hub.select(viewer, Selection(sources=[("old", "cam1"), ("new", "cam1"), ("other", "cam1")]))
    await viewer.next()

    def show(daemon: str, epoch: int | None, fleet: str = "north") -> None:
        owner = None if epoch is None else Owner(daemon, epoch, fleet)
        status = Status(instance=daemon, source="cam1", session=None, index=0, at=0, state="up", owner=owner)
        for message in (msgspec.structs.replace(MESSAGE, owner=owner, instance=daemon), status):
            hub._on_message(hub.daemons[daemon], _arrived(message, encoding))

    show("old", 5)
    show("new", 6)
    show("old", 5)
    show("old", None)  # a daemon without a fleet
    show("other", 4, "south")  # a fleet that has a source of the same id
    shown = msgspec.json.decode(await viewer.next())
    told = [(row["daemon"], row["message"]["owner"]) for row in shown if row["kind"] in ("detections", "status")]
    assert [(daemon, owner and owner["epoch"]) for daemon, owner in told] == [
        *[("old", 5)] * 2,
        *[("new", 6)] * 2,
        *[("old", None)] * 2,
        *[("other", 4)] * 2,
    ]
    assert [daemon.entry()["fenced"] for daemon in hub.daemons.values()] == [2, 0, 0]
