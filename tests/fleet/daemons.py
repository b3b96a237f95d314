"""Whole daemons of a fleet in this process, over a coordinator in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from daemon.build import build
from daemon.clock import SystemClock
from daemon.config.model import ModelConfig
from daemon.daemon import Daemon
from daemon.fleet.member import CoordinatorAccess, Member
from daemon.fleet.port import Coordinator
from daemon.fleet.records import Owned, SourceRecord, Want
from daemon.fleet_config import FleetConfig
from daemon.seams import Seams
from detectors.fake.detector import FakeDetector
from tests.fleet.held_coordinator import HeldCoordinator
from tests.fleet.lease_thread import LeaseThread
from tests.fleet.memory_coordinator import Lease, MemoryEngine
from tests.lifetimes.cameras import make
from tests.lifetimes.rig import LIMITS, wait_until
from tests.lifetimes.running import config_of, state_of

TTL_S = 2.0


class Fleet:
    """Daemons, their coordinator, and what an operator and a placer do.

    Attributes:
        hooks: see `HeldCoordinator`; for all daemons.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.engine = folder, MemoryEngine()
        self.engine.content.placer = Lease("elsewhere", 0.0, 1 << 62, 0)  # the test says what is wanted
        self.hooks: dict[str, Callable[[], None]] = {}
        self.stack = ExitStack()

    def app(
        self,
        name: str,
        make_source: Any = None,
        limits: Any = LIMITS,
        models: Mapping[str, ModelConfig] | None = None,
        **fleet: Any,
    ) -> Daemon:
        """A daemon that is not started."""
        settings = {"ttl_s": TTL_S, "connects_per_s": 1000.0, **fleet}
        own = FleetConfig(coordinator="etcd://127.0.0.1:2379", member=name, **settings)
        config = config_of(fleet=own, models=dict(models or {}))
        app = build(
            config,
            Seams(
                limits=limits,
                open_detector=lambda _, options: FakeDetector(options, service_s=0.002),
                make_source=make_source or partial(make, folder=self.folder),
                coordinator=CoordinatorAccess(
                    self.connect, lambda renewal, ttl_s: LeaseThread(renewal, ttl_s, SystemClock())
                ),
            ),
        )
        self.stack.callback(app.stop)
        return app

    def start(self, name: str, **more: Any) -> Daemon:
        app = self.app(name, **more)
        app.start()
        return app

    def connect(self) -> Coordinator:
        return HeldCoordinator(self.engine, self.hooks)

    def want(self, member: str | None, *sources: str, **config: Any) -> None:
        """Sources that do not exist yet are put; they are wanted at this member, whoever has them."""
        row = {"type": "synthetic", "fps": 50, "width": 16, "height": 16, "objects": 1, **config}
        with self.engine.changes:
            content = self.engine.content
            for source in sources:
                if source not in content.sources or config:
                    content.sources[source] = SourceRecord(config={"id": source, **row})
                content.wants[source] = Want(member=member)
            self.engine.touch()

    @property
    def owned(self) -> Mapping[str, Owned]:
        with self.engine.changes:
            return self.engine.view().owned

    def wait_owned(self, member: str | None, *sources: str) -> None:
        def is_so() -> bool:
            owned = self.owned
            return all((owned[id].member if id in owned else None) == member for id in sources)

        wait_until(is_so, f"{sources} owned by {member}", lambda: self.owned)


@contextmanager
def fleet_in(folder: Path) -> Iterator[Fleet]:
    fleet = Fleet(folder)
    try:
        yield fleet
    finally:
        for hook in ("join", "claim", "release", "leave", "update", "follow", "saw", "refuse"):
            fleet.hooks.pop(hook, None)
        fleet.stack.close()


def member_of(app: Daemon) -> Member:
    assert app.fleet is not None
    return app.fleet.member


def wait_runs(app: Daemon, *sources: str) -> None:
    """Wait until these sources, and no others, are up and give messages."""
    wait_until(
        lambda: {row.id for row in app.sources.captures} == {*sources}, "its sources", lambda: app.sources.captures
    )
    wait_until(lambda: all(state_of(app, id) == "up" for id in sources), f"{sources} are up")
    before = app.ledger.counts()
    wait_until(
        lambda: all(app.ledger.counts()[id].published > before[id].published for id in sources),
        "they are published",
        app.ledger.counts,
    )
