"""The coordinator is away for long: what `keep` and `stop` promise, side by side.

    python -m tests.fleet.trials.away [--minutes 10 --sources 60 --ttl 5]

With `keep` each source goes on with the owner and the epoch that it has, and nothing changes when the coordinator is
back. With `stop` nothing is heard from the lease's end until the coordinator is back, and then everything is again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from time import monotonic, sleep

from daemon.fleet_config import OnCoordinatorLoss
from tests.fleet.trials.world import World

_WORDS: tuple[OnCoordinatorLoss, ...] = ("keep", "stop")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--sources", type=int, default=60)
    parser.add_argument("--fps", type=float, default=2.0)
    parser.add_argument("--ttl", type=float, default=5.0)
    args = parser.parse_args()
    with ExitStack() as stack:
        worlds = {
            word: stack.enter_context(
                World(
                    Path(tempfile.mkdtemp(prefix="fleet-")),
                    sources=args.sources,
                    fps=args.fps,
                    ttl_s=args.ttl,
                    on_loss=word,
                )
            )
            for word in _WORDS
        }
        for world in worlds.values():
            world.start()
        gone = monotonic()
        for world in worlds.values():
            world.servers[0].kill()
        _watch(worlds, gone, 60 * args.minutes)
        back = monotonic()
        for world in worlds.values():
            world.servers[0].start()
        faults = []
        for word, world in worlds.items():
            world.settle()
            sys.stdout.write(f"{word}: all are heard {monotonic() - back:.1f} s after the coordinator is back\n")
            faults += [f"{word}: {fault}" for fault in world.faults]
        faults += _broken(worlds, gone, back, args.ttl)
    sys.stdout.write("\n".join(["", *faults, ""]) if faults else "no promise was broken\n")
    return int(bool(faults))


def _watch(worlds: dict[OnCoordinatorLoss, World], gone: float, seconds: float) -> None:
    while (passed := monotonic() - gone) < seconds:
        heard = {word: sum(silent < 3 for silent in world.reader.silence().values()) for word, world in worlds.items()}
        sys.stdout.write(f"{passed:6.0f} s without a coordinator: heard {heard}\n")
        sys.stdout.flush()
        sleep(min(seconds / 10, seconds - passed + 0.01))


def _broken(worlds: dict[OnCoordinatorLoss, World], gone: float, back: float, ttl_s: float) -> list[str]:
    faults = []
    changed = [source for source, rows in worlds["keep"].reader.heard.items() if rows[-1].first > gone]
    if changed:
        faults.append(f"keep: {len(changed)} sources have another owner or epoch, such as {changed[0]}")
    for source, rows in worlds["stop"].reader.heard.items():
        late = [row for row in rows if row.first < back and row.last > gone + ttl_s]
        if late:
            faults.append(f"stop: {source} was heard {late[-1].last - gone:.1f} s after the coordinator was gone")
    silent = [
        after.first - before.last for rows in worlds["stop"].reader.heard.values() for before, after in pairwise(rows)
    ]
    if silent:
        sys.stdout.write(f"stop: sources were silent for {min(silent):.1f} to {max(silent):.1f} s\n")
    return faults


if __name__ == "__main__":
    sys.exit(main())
