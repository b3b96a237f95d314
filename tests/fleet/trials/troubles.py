"""Troubles of a fleet, each with its end. They may overlap."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

import psutil

from daemon.errors import LookoutError
from daemon.fleet import operations
from daemon.fleet.records import FleetView
from tests.fleet.trials.world import Host, World

Trouble = Callable[[World, Host, float], Iterator[float]]
"""Yields seconds to wait before its next step. Takes the time to live of leases."""


@dataclass
class Underway:
    """A trouble that has begun.

    Attributes:
        due: monotonic seconds of its next step.
    """

    name: str
    host: Host
    steps: Iterator[float]
    due: float


def killed(world: World, host: Host, ttl_s: float) -> Iterator[float]:
    """The daemon alone: the process that renews the lease learns of it."""
    host.kill()
    yield world.chance.uniform(0, ttl_s)
    host.start()


def power_lost(world: World, host: Host, ttl_s: float) -> Iterator[float]:
    """Nothing is left that could give the lease up."""
    host.kill(whole=True)
    yield world.chance.uniform(0, 2 * ttl_s)
    host.start()


def paused(world: World, host: Host, ttl_s: float) -> Iterator[float]:
    """The daemon and its children, beyond the lease's end."""
    host.pause()
    yield world.chance.uniform(0.3, 2) * ttl_s
    host.resume()


def frozen(world: World, host: Host, ttl_s: float) -> Iterator[float]:
    """The daemon alone."""
    host.pause(whole=False)
    yield world.chance.uniform(0.3, 2) * ttl_s
    host.resume()


def swallowed(world: World, host: Host, ttl_s: float) -> Iterator[float]:
    """A network between member and coordinator that takes everything, and gives it late: TCP loses nothing."""
    host.swallow(held=True)
    yield world.chance.uniform(0.3, 2) * ttl_s
    host.swallow(held=False)


def cut(_: World, host: Host, ttl_s: float) -> Iterator[float]:
    for _turn in range(3):
        for proxy in host.proxies:
            proxy.cut()
        yield ttl_s / 10


def keeper_killed(world: World, host: Host, _: float) -> Iterator[float]:
    keeper = host.keeper()
    if keeper is not None:
        with suppress(psutil.NoSuchProcess):
            keeper.kill()
    yield world.chance.uniform(0, 0.2)


def clock_stepped(world: World, host: Host, ttl_s: float) -> Iterator[float]:
    host.step_clock(world.chance.choice((-86_400, -3600, -30, 30, 3600, 86_400)))
    yield world.chance.uniform(0.3, 2) * ttl_s
    host.step_clock(0)


def placer_killed(world: World, host: Host, ttl_s: float) -> Iterator[float]:
    view = world.view()
    placer = world.everyone.get(view.placer or "") if view else None
    yield from killed(world, placer or host, ttl_s)


def stopped(world: World, host: Host, ttl_s: float) -> Iterator[float]:
    """A clean stop, and a new start."""
    host.stop()
    yield world.chance.uniform(0, ttl_s)
    host.start()


def flapping(world: World, host: Host, ttl_s: float) -> Iterator[float]:
    for _ in range(3):
        host.kill()
        yield world.chance.uniform(0, 0.5)
        host.start()
        yield world.chance.uniform(0.5, 1) * ttl_s


def drained(world: World, host: Host, ttl_s: float) -> Iterator[float]:
    with suppress(LookoutError):
        world.coordinator.drain(host.name, "a trial")
    yield world.chance.uniform(0.5, 2) * ttl_s
    yield from _undrain(world, host)


def _undrain(world: World, host: Host) -> Iterator[float]:
    while True:
        with suppress(LookoutError):
            world.coordinator.undrain(host.name)
            return
        yield 0.2


def added(world: World, _: Host, ttl_s: float) -> Iterator[float]:
    """A member more joins, gets sources and leaves, up to three times. A name that comes back is the same member."""
    guest = world.take_guest()
    for _life in range(world.chance.randint(1, 3)):
        if world.chance.random() < 0.5:
            world.give_back(guest)
            guest = world.take_guest()
        guest.start()
        world.lives["begun"] += 1
        if world.chance.random() < 0.2:  # so that it leaves in the middle of joining
            yield world.chance.uniform(0, 2 * ttl_s)
        else:
            yield from _invite(world, guest, ttl_s)
        yield from _part(world, guest, ttl_s)
        yield world.chance.uniform(0, ttl_s)
    world.give_back(guest)


def _invite(world: World, guest: Host, ttl_s: float) -> Iterator[float]:
    """A new member gets what waits. An operator may give it more."""
    joined = yield from _until(world, lambda view: guest.name in view.members, 10 * ttl_s)
    world.lives["joined"] += joined
    with suppress(LookoutError):
        match world.chance.choice(("rebalance", "move", "nothing")):
            case "rebalance":
                operations.rebalanced(world.coordinator, dry_run=False)
            case "move":
                some = world.chance.sample(world.sources, max(1, len(world.sources) // 5))
                world.coordinator.move(some, guest.name, pinned=world.chance.random() < 0.5)
    yield world.chance.uniform(0.2, 2) * ttl_s


def _part(world: World, guest: Host, ttl_s: float) -> Iterator[float]:
    way = world.chance.choice(("stopped", "killed", "power lost", "drained"))
    world.lives[way] += 1
    if way == "drained":
        with suppress(LookoutError):
            world.coordinator.drain(guest.name, "it leaves")
        yield from _until(world, lambda view: guest.name not in _owners(view), 5 * ttl_s)
    if way in ("stopped", "drained"):
        guest.stop()
    else:
        guest.kill(whole=way == "power lost")
    if way == "drained":
        yield from _undrain(world, guest)


def _owners(view: FleetView) -> set[str]:
    return {owned.member for owned in view.owned.values()}


def _until(world: World, condition: Callable[[FleetView], bool], limit_s: float) -> Generator[float, None, bool]:
    """Returns whether the condition came to hold in time."""
    until = monotonic() + limit_s
    while not ((view := world.view()) and condition(view)):
        if monotonic() > until:
            return False
        yield 0.2
    return True


def moved(world: World, host: Host, ttl_s: float) -> Iterator[float]:
    """Some sources, there and to another member at once."""
    some = world.chance.sample(world.sources, min(20, len(world.sources)))
    for name in (host.name, world.chance.choice([*world.hosts])):
        with suppress(LookoutError):
            world.coordinator.move(some, name)
        yield world.chance.uniform(0, ttl_s / 2)


def etcd_restarted(world: World, _: Host, ttl_s: float) -> Iterator[float]:
    server = world.chance.choice(world.servers)
    server.kill()
    yield world.chance.uniform(0.1, 1.5) * ttl_s
    server.launch()
    yield 0.5


def leader_changed(world: World, _: Host, ttl_s: float) -> Iterator[float]:
    if len(world.servers) == 1:
        return
    leader = world.cluster.leader()
    leader.pause()
    yield world.chance.uniform(1, 2) * ttl_s
    leader.resume()


TROUBLES: tuple[Trouble, ...] = (
    killed,
    power_lost,
    paused,
    frozen,
    swallowed,
    cut,
    keeper_killed,
    clock_stepped,
    placer_killed,
    stopped,
    flapping,
    drained,
    added,
    moved,
    etcd_restarted,
    leader_changed,
)
PAUSES = (paused.__name__, frozen.__name__)
