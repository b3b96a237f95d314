"""Three daemons and a real etcd: sources are placed, taken over, drained and changed, by commands and over HTTP."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from daemon.cli import invoke
from tests.fleet.etcd_server import EtcdServer
from tests.fleet.processes import Daemons
from tests.support.daemon import wait_until

pytestmark = pytest.mark.needs("etcd-server", "etcd-client")
NAMES = ("a/gpu0", "b/gpu0", "c/gpu0")


@pytest.fixture
def daemons(tmp_path: Path, etcd: EtcdServer) -> Iterator[Daemons]:
    with closing(Daemons(tmp_path, etcd, "daemons")) as found:
        for name in NAMES:
            (tmp_path / name).parent.mkdir()
            found.start(name)
        yield found


def test_a_life_of_a_fleet(daemons: Daemons, etcd: EtcdServer, capsys: pytest.CaptureFixture[str]) -> None:
    daemons.wait_for_members(*NAMES)  # who comes later gets nothing by itself
    daemons.add(*(f"street-{number}" for number in range(24)))
    before = daemons.wait_until_owned(24)
    assert set(daemons.owners().values()) == set(NAMES)

    # The placer is killed: another one takes its place, and what it had goes to the others. Nothing else moves.
    owners, placer = daemons.owners(), str(before.placer)
    daemons.running[placer].process.kill()
    wait_until(lambda: placer not in daemons.coordinator.view().members, "its lease has ended")
    after = daemons.wait_until_owned(24)
    now = daemons.owners()
    assert {id for id in now if now[id] != owners[id]} == {id for id in owners if owners[id] == placer}
    assert all(after.owned[id].epoch > row.epoch for id, row in before.owned.items() if row.member == placer)
    wait_until(lambda: daemons.coordinator.view().losses == {placer: 1}, "the loss is counted")

    # It comes back, and gets nothing until an operator rebalances.
    daemons.start(placer)
    daemons.wait_for_members(placer)
    at = ("--coordinator", f"etcd://127.0.0.1:{etcd.port}", "--name", "daemons")
    capsys.readouterr()
    assert invoke(["fleet", "rebalance", *at]) == 0
    moves = int(re.findall(r"^(\d+) moves$", capsys.readouterr().out, re.M)[0])  # by rates that a busy machine measures
    assert moves > 0
    wait_until(lambda: Counter(daemons.owners().values())[placer] == moves, "it has sources again")
    daemons.wait_until_owned(24)
    assert invoke(["fleet", "drain", placer, *at, "--wait"]) == 0
    assert placer not in daemons.owners().values()
    assert "has no source any more" in capsys.readouterr().out

    # Over HTTP of any member: the status, a move, and a change of a source that this member owns.
    other = next(name for name in NAMES if name != placer)
    with daemons.client(other) as client:
        found = client.get("/api/v1/fleet").json()
        assert (found["unplaced"], found["own"]["lease"], found["own"]["coordinator_up"]) == (0, "renewed", True)
        assert client.get("/api/v1/daemon").json()["fleet"] == "daemons"
        mine = next(id for id, owner in daemons.owners().items() if owner == other)
        assert client.patch(f"/api/v1/sources/{mine}", json={"max_fps": 2}).status_code == 200
        wait_until(lambda: client.get(f"/api/v1/sources/{mine}").json()["config"]["max_fps"] == 2, "it has changed")
        street = {"id": "new", "type": "synthetic", "width": 64, "height": 48}
        assert client.post("/api/v1/sources", json=street).status_code == 202
        daemons.wait_until_owned(25)
        assert client.post("/api/v1/sources", json=street).status_code == 409
        assert client.delete(f"/api/v1/sources/{mine}").status_code == 204
        daemons.wait_until_owned(24)
        text = client.get("/metrics").text
    assert 'lookout_fleet_sources{state="owned"} 24.0' in text
    assert "lookout_fleet_lease_valid_seconds" in text

    # A daemon that is told to end gives up its sources by itself, which is no loss.
    assert daemons.running[other].stop() == 0
    daemons.wait_until_owned(24)
    assert other not in daemons.coordinator.view().losses
