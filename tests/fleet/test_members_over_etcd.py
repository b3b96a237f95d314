"""Daemons in processes of their own over a real etcd: killed, paused, and their sources moved. A reader hears each
source from one owner after the other."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from daemon.fleet.etcd_coordinator import EtcdCoordinator
from daemon.fleet.records import SourceRecord
from lookout.client import Subscriber
from lookout.messages import Detections, Event, Message, Status
from tests.fleet.etcd_server import EtcdServer
from tests.support.daemon import Lookout, wait_until

pytestmark = [pytest.mark.needs("etcd-server", "etcd-client"), pytest.mark.slow(3)]
_SOURCES = tuple(f"cam-{number}" for number in range(4))


class World:
    """An etcd, daemons, and a reader of them all.

    Attributes:
        fleet: name of the fleet.
    """

    def __init__(self, folder: Path, etcd: EtcdServer, stack: ExitStack) -> None:
        self.folder, self.etcd, self.stack = folder, etcd, stack
        self.fleet = folder.name
        self.coordinator = stack.enter_context(closing(EtcdCoordinator(etcd.settings(), self.fleet)))
        row = {"type": "synthetic", "fps": 20, "width": 64, "height": 48, "objects": 1, "tracking": True}
        records = {id: SourceRecord(config={"id": id, **row}) for id in _SOURCES}
        self.coordinator.put_sources(records, replace=True)
        kinds = ("detections", "status", "events", "counts")
        address = f"etcd://127.0.0.1:{etcd.port}/{self.fleet}"
        self.subscriber = stack.enter_context(Subscriber(fleet=address, kinds=kinds, high_water_mark=100_000))
        self.heard: list[Message] = []

    def launch(self, name: str, folder: str) -> Lookout:
        (self.folder / folder).mkdir()
        coordinator = f"etcd://127.0.0.1:{self.etcd.port}"
        config: dict[str, object] = {
            "model": {"path": "none.onnx", "backend": "fake"},
            "sources": [],
            "fleet": {"coordinator": coordinator, "name": self.fleet, "member": name, "ttl_s": 2},
        }
        daemon = Lookout(self.folder / folder, config)
        self.stack.callback(daemon.close)
        return daemon

    def start(self, name: str) -> Lookout:
        daemon = self.launch(name, name.replace("/", "-"))
        wait_until(lambda: name in self.coordinator.view().members, f"{name} is a member")
        return daemon

    def listen(self, until: Callable[[], bool], what: str) -> None:
        def is_so() -> bool:
            message = self.subscriber.receive(0.02)
            while message is not None:
                self.heard.append(message)
                message = self.subscriber.receive(0.0)
            return until()

        wait_until(is_so, what)

    def wait_heard(self, member: str) -> None:
        """Wait until all sources are heard from a member."""
        begun = len(self.heard)

        def are_heard() -> bool:
            recent = [row for row in self.heard[begun:] if isinstance(row, Detections)]
            return {row.source for row in recent if row.owner and row.owner.node == member} == {*_SOURCES}

        self.listen(are_heard, f"all are heard from {member}")

    def check(self) -> None:
        """No lower epoch after a higher one, over all kinds; no message twice; an epoch has one owner."""
        owners: dict[tuple[str, int], str] = {}
        for source in _SOURCES:
            epochs = []
            for row in self.heard:
                if isinstance(row, (Detections, Status, Event)) and row.source == source:
                    assert row.owner is not None
                    epochs.append(row.owner.epoch)
                    assert owners.setdefault((source, row.owner.epoch), row.owner.node) == row.owner.node
            assert epochs == sorted(epochs)


@pytest.fixture
def world(tmp_path: Path, etcd: EtcdServer) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path, etcd, stack)


def test_sources_move_and_members_die(world: World) -> None:
    one, two = world.start("hall/one"), world.start("hall/two")
    world.coordinator.move(_SOURCES, "hall/one")
    world.wait_heard("hall/one")
    world.coordinator.move(_SOURCES, "hall/two")
    world.wait_heard("hall/two")
    two.process.kill()
    wait_until(lambda: "hall/two" not in world.coordinator.view().members, "its lease has ended")
    world.coordinator.move(_SOURCES, "hall/one")
    world.wait_heard("hall/one")
    assert one.stop() == 0
    assert world.coordinator.view().members == {}
    assert world.coordinator.view().owned == {}
    world.check()
    assert world.subscriber.lost == {}


def test_a_paused_member_speaks_for_nobody_when_it_goes_on(world: World) -> None:
    one = world.start("hall/one")
    world.start("hall/two")
    world.coordinator.move(_SOURCES, "hall/one")
    world.wait_heard("hall/one")
    one.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: "hall/one" not in world.coordinator.view().members, "its lease has ended")
    world.coordinator.move(_SOURCES, "hall/two")
    world.wait_heard("hall/two")
    one.process.send_signal(signal.SIGCONT)
    world.listen(lambda: "hall/one" in world.coordinator.view().members, "it joins anew")
    world.wait_heard("hall/two")
    world.check()
    assert "the lease is lost" in one.log()
    assert one.stop() == 0


@pytest.mark.long
def test_a_second_daemon_of_a_name_ends_with_one_line(world: World) -> None:
    world.start("hall/one")
    second = world.launch("hall/one", "second")
    assert second.process.wait(60) == 2
    assert "is in the fleet already" in second.log().splitlines()[-1]
    assert "Traceback" not in second.log()


@pytest.mark.long
def test_members_go_on_while_etcd_restarts(tmp_path: Path, etcd_alone: EtcdServer) -> None:
    """For longer than a lease: `keep` goes on."""
    with ExitStack() as stack:
        world = World(tmp_path, etcd_alone, stack)
        world.start("hall/one")
        world.coordinator.move(_SOURCES, "hall/one")
        world.wait_heard("hall/one")
        etcd_alone.kill()
        for _ in range(4):
            world.wait_heard("hall/one")
        etcd_alone.start()
        wait_until(lambda: {*world.coordinator.view().owned} == {*_SOURCES}, "all are owned")
        world.wait_heard("hall/one")
        world.check()
