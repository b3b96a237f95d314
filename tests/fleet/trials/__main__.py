"""Random histories of a fleet. No source has two owners in the coordinator's order. No reader hears an owner after
its successor. After each history every source is heard again.

    python -m tests.fleet.trials [--histories 200 --sources 300 --seed 1 --servers 3 --on-loss keep --ttl 2 --late]

A history has one to three troubles of tests/fleet/trials/troubles.py, which may overlap. `--late` plants a defect:
members believe in their lease for longer than it lasts, and a promise must break. The last lines say how long sources
were silent.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import monotonic, sleep

import psutil

from tests.fleet.trials.observers import Heard
from tests.fleet.trials.troubles import PAUSES, TROUBLES, Trouble, Underway, added
from tests.fleet.trials.world import World
from tests.support.daemon import ROOT

_BY_NAME = {trouble.__name__: trouble for trouble in TROUBLES}
_MOST = 3  # troubles of a history
_BYTES, _BYTES_BESIDE = 150 << 20, 1 << 30  # of memory: a daemon's, and those of etcd, the witnesses and others
_TURN_S = 0.02
_LATE_S = 1.0  # a process that goes on after a pause may have messages in its sockets


class Histories:
    """Runs them one after the other in one world, and judges each.

    Attributes:
        faults: broken promises, each with its history.
    """

    def __init__(self, world: World, troubles: Sequence[Trouble], ttl_s: float, on_loss: str) -> None:
        self._world, self._troubles, self._ttl_s, self._strict = world, troubles, ttl_s, on_loss == "stop"
        self.faults: list[str] = []
        self.settled: list[float] = []
        self.count: Counter[str] = Counter()
        self._judged = self._late = 0

    def run(self, number: int, seed: int) -> str:
        """Run one history; returns its description."""
        world = self._world
        world.chance = random.Random(f"{seed}/{number}")
        begun = monotonic()
        chosen = world.chance.choices(self._troubles, k=world.chance.randint(1, _MOST))
        hosts = [world.chance.choice([*world.hosts.values()]) for _ in chosen]
        rows = [
            Underway(trouble.__name__, host, trouble(world, host, self._ttl_s), begun + world.chance.uniform(0, 2))
            for trouble, host in zip(chosen, hosts)
        ]
        names = ", ".join(f"{row.name} {row.host.name}" for row in rows)
        self.count.update(row.name for row in rows)
        pauses = [(row.name in PAUSES) for row in rows]
        self._play(rows)
        for host in world.hosts.values():
            host.resume()
            host.start()
        for guest in world.guests.values():  # another trouble may have started one again
            guest.stop()
        self.settled.append(world.settle())
        self._judge(f"history {number} ({names})", paused=any(pauses))
        return names

    def _play(self, rows: list[Underway]) -> None:
        while rows:
            now = monotonic()
            for row in [row for row in rows if row.due <= now]:
                try:
                    row.due = monotonic() + next(row.steps)
                except StopIteration:
                    rows.remove(row)
            sleep(_TURN_S)

    def _judge(self, name: str, *, paused: bool) -> None:
        fresh = self._world.faults[self._judged :]
        self._judged += len(fresh)
        self.faults += [f"{name}: {fault}" for fault in fresh]
        late, self._late = self._world.reader.late[self._late :], len(self._world.reader.late)
        if late and self._strict and not paused:
            seconds = late[-1][0] - late[0][0]
            self.faults.append(
                f"{name}: {sum(count for _, count in late)} messages of former owners, over {seconds:.1f} s, "
                "while no process was paused"
            )
        elif self._strict and (longest := _longest_burst(late)) > _LATE_S:
            self.faults.append(f"{name}: messages of a paused owner go on for {longest:.1f} s")


def _longest_burst(late: Sequence[tuple[float, int]]) -> float:
    """Seconds of the longest run of arrivals that follow each other within `_LATE_S`."""
    longest = begun = 0.0
    for before, after in pairwise(at for at, _ in late):
        begun = begun or before
        if after - before > _LATE_S:
            begun = after
        longest = max(longest, after - begun)
    return longest


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--histories", type=int, default=200)
    parser.add_argument("--sources", type=int, default=300)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--servers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--fps", type=float, default=1.0)
    parser.add_argument("--ttl", type=float, default=2.0)
    parser.add_argument("--on-loss", choices=("keep", "stop"), default="stop")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first history")
    parser.add_argument("--late", action="store_true", help="plant the defect")
    parser.add_argument("--only", nargs="+", choices=list(_BY_NAME), default=list(_BY_NAME))
    args = parser.parse_args()
    troubles = [_BY_NAME[name] for name in args.only]
    guests = _MOST if added in troubles else 0
    _check_memory(args.members + guests)
    folder = Path(tempfile.mkdtemp(prefix="fleet-"))
    world = World(
        folder,
        members=args.members,
        guests=guests,
        sources=args.sources,
        fps=args.fps,
        ttl_s=args.ttl,
        on_loss=args.on_loss,
        servers=args.servers,
        seed=args.seed,
    )
    if args.late:
        world.environment["PYTHONPATH"] = _late_members(folder)
    with world:
        world.start()
        histories = Histories(world, troubles, args.ttl, args.on_loss)
        begun = monotonic()
        try:
            for number in range(args.first, args.first + args.histories):
                names = histories.run(number, args.seed)
                sys.stdout.write(f"{number:4} {histories.settled[-1]:6.1f} s  {names}\n")
                sys.stdout.flush()
        except AssertionError as error:
            histories.faults.append(str(error))
        _report(world, histories, monotonic() - begun)
    return int(bool(histories.faults) != args.late)


def _late_members(folder: Path) -> str:
    """A PYTHONPATH that makes members believe in their lease for half a minute longer."""
    place = folder / "late"
    place.mkdir()
    (place / "sitecustomize.py").write_text("import tests.fleet.trials.late_member\n")
    return os.pathsep.join((str(place), str(ROOT)))


def _check_memory(members: int) -> None:
    """End in one line where the machine has no room."""
    free = psutil.virtual_memory().available
    if free < (wanted := _BYTES_BESIDE + members * _BYTES):
        sys.exit(f"{members} daemons want {wanted >> 20} MiB, of which {free >> 20} are free: ask for fewer --members")


def _report(world: World, histories: Histories, seconds: float) -> None:
    changes = [pair for rows in [*world.reader.heard.values()] for pair in pairwise(rows)]
    out = sys.stdout.write
    out(f"\n{len(histories.settled)} histories in {seconds:.0f} s: {dict(histories.count)}\n")
    out(f"{sum(turn.member is not None for turn in world.order.turns)} changes of owners, {len(changes)} heard, ")
    out(f"{sum(n for _, n in world.reader.late)} messages left out, {sum(world.reader.lost.values())} lost\n")
    out(_silence("a change of owners", changes))
    if world.lives:
        out(f"lives of added members: {dict(world.lives)}\n")
        out(_silence("a change to an added member", [pair for pair in changes if pair[1].member in world.guests]))
        out(_silence("a change from an added member", [pair for pair in changes if pair[0].member in world.guests]))
    if histories.settled:
        out(f"heard again after the last trouble: median {median(histories.settled):.1f} s, ")
        out(f"longest {max(histories.settled):.1f} s\n")
    out("\n".join(["", *histories.faults, ""]) if histories.faults else "no promise was broken\n")


def _silence(where: str, changes: Sequence[tuple[Heard, Heard]]) -> str:
    silent = [after.first - before.last for before, after in changes]
    if not silent:
        return ""
    return f"silence at {where}: median {median(silent):.2f} s, longest {max(silent):.2f} s, of {len(silent)}\n"


if __name__ == "__main__":
    sys.exit(main())
