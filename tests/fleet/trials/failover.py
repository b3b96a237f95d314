"""How long a fail-over takes, by its cause, and that nobody else's camera moves.

    python -m tests.fleet.trials.failover [--ttl 5 --sources 450 --members 3 --rounds 5 --servers 3]

For each cause one member is hurt, which owns a share of the sources. Times count from the trouble: until another member
has claimed a source, and until that member is heard. `taken over` is from the first source that lost its owner to the
last claim. The median and the worst are over all sources of all rounds. The member comes back before the next round.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import monotonic

from tests.fleet.trials.world import Host, World

Cause = Callable[[World, Host], Iterator[None]]
"""Hurts a member, and, asked again, lets it come back."""


@dataclass
class Times:
    """Seconds, of each source.

    Attributes:
        silent: between the last message of the old and the first of the new owner.
        taken: one for each round.
        others: sources of other members that moved.
        lost: sources of the member, one for each round.
    """

    claimed: list[float] = field(default_factory=list)
    heard: list[float] = field(default_factory=list)
    silent: list[float] = field(default_factory=list)
    taken: list[float] = field(default_factory=list)
    others: int = 0
    lost: list[int] = field(default_factory=list)


def killed(_: World, host: Host) -> Iterator[None]:
    host.kill()
    yield
    host.start()


def power_lost(_: World, host: Host) -> Iterator[None]:
    host.kill(whole=True)
    yield
    host.start()


def paused(_: World, host: Host) -> Iterator[None]:
    host.pause()
    yield
    host.resume()


def cut_off(_: World, host: Host) -> Iterator[None]:
    host.swallow(held=True)
    yield
    host.swallow(held=False)


def leader_lost(world: World, host: Host) -> Iterator[None]:
    """The power of a member, and the leader of etcd with it."""
    leader = world.cluster.leader() if len(world.servers) > 1 else None
    if leader:
        leader.kill()
    host.kill(whole=True)
    yield
    if leader:
        leader.start()
    host.start()


def stopped(_: World, host: Host) -> Iterator[None]:
    host.stop()
    yield
    host.start()


def drained(world: World, host: Host) -> Iterator[None]:
    world.coordinator.drain(host.name, "a trial")
    yield
    world.coordinator.undrain(host.name)


_CAUSES: tuple[Cause, ...] = (drained, stopped, killed, power_lost, paused, cut_off, leader_lost)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ttl", type=float, default=5.0)
    parser.add_argument("--sources", type=int, default=450)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--servers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--fps", type=float, default=2.0)
    parser.add_argument("--connects-per-s", type=float, default=50.0, help="of each member, as in its configuration")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[cause.__name__ for cause in _CAUSES])
    args = parser.parse_args()
    sizes = {"members": args.members, "sources": args.sources, "servers": args.servers}
    rates = {"fps": args.fps, "ttl_s": args.ttl, "connects_per_s": args.connects_per_s}
    with World(Path(tempfile.mkdtemp(prefix="fleet-")), **rates, **sizes) as world:
        world.start()
        sys.stdout.write(
            f"{args.sources} sources of {args.fps:g} frames/s, {args.members} members, TTL {args.ttl:g} s\n"
            f"{'cause':12} {'claimed: median':>16} {'worst':>7} {'heard: median':>14} {'worst':>7}"
            f" {'silent: median':>15} {'worst':>7} {'taken over':>11} {'others moved':>13} {'sources':>8}\n"
        )
        others = 0
        for cause in _CAUSES:
            if cause.__name__ not in args.only or (cause is leader_lost and args.servers == 1):
                continue
            times = Times()
            for _ in range(args.rounds):
                _measure(world, cause, times)
            others += times.others
            sys.stdout.write(_row(cause.__name__, times))
            sys.stdout.flush()
        sys.stdout.write("\n".join(["", *world.faults, ""]) if world.faults else "no promise was broken\n")
        return int(bool(world.faults or others))


def _measure(world: World, cause: Cause, times: Times) -> None:
    view = world.coordinator.view()
    shares = {name: [id for id, owned in view.owned.items() if owned.member == name] for name in world.hosts}
    name = max(shares, key=lambda name: len(shares[name]))
    mine, host = {*shares[name]}, world.hosts[name]
    times.lost.append(len(mine))
    steps, begun, turns = cause(world, host), monotonic(), len(world.order.turns)
    next(steps)
    world.wait(lambda: _is_taken_over(world, mine, name), f"the sources of {name} are heard from others")
    world.wait(lambda: mine <= _claimed(world, turns, name), f"the claims of the sources of {name} are known")
    rows = world.order.turns[turns:]
    times.others += len({row.source for row in rows} - mine)
    claims = {row.source: row.at for row in rows if row.member not in (None, name)}
    freed = [row.at for row in rows if row.member is None and row.source in mine]
    times.taken.append(max(claims.values()) - min(freed))
    for source in mine:
        before, after = world.reader.heard[source][-2:]
        times.claimed.append(claims[source] - begun)
        times.heard.append(after.first - begun)
        times.silent.append(after.first - before.last)
    next(steps, None)
    world.wait(lambda: name in (world.coordinator.view().members), f"{name} is back")
    world.coordinator.move(sorted(mine), name)
    world.wait(lambda: _is_back(world, mine, name), f"the sources of {name} are back")


def _claimed(world: World, turns: int, former: str) -> set[str]:
    return {row.source for row in world.order.turns[turns:] if row.member not in (None, former)}


def _is_taken_over(world: World, sources: set[str], former: str) -> bool:
    return all(world.reader.heard[source][-1].member != former for source in sources)


def _is_back(world: World, sources: set[str], name: str) -> bool:
    return all(world.reader.heard[source][-1].member == name for source in sources)


def _row(name: str, times: Times) -> str:
    return (
        f"{name:12} {median(times.claimed):14.2f} s {max(times.claimed):5.2f} s {median(times.heard):12.2f} s"
        f" {max(times.heard):5.2f} s {median(times.silent):13.2f} s {max(times.silent):5.2f} s"
        f" {max(times.taken):9.2f} s {times.others:13} {max(times.lost):8}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
