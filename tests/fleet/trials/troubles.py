"""Troubles of a fleet, each with its end. They may overlap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import psutil

from daemon.errors import LookoutError
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
    """A network between member and coordinator that takes everything and gives nothing."""
    host.swallow(silent=True)
    yield world.chance.uniform(0.3, 2) * ttl_s
    host.swallow(silent=False)


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
    placer = world.hosts.get(view.placer or "") if view else None
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
    while True:
        with suppress(LookoutError):
            world.coordinator.undrain(host.name)
            return
        yield 0.2


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
    moved,
    etcd_restarted,
    leader_changed,
)
PAUSES = (paused.__name__, frozen.__name__)
