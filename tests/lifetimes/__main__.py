"""`python -m tests.lifetimes --count 2000 --jobs 2`: random histories until one breaks a rule.

With `--plant KIND` a defect is put into the daemon first, and it is said after how many histories it is found.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from typing import NoReturn

import structlog
from hypothesis.stateful import run_state_machine_as_test

from tests.lifetimes.histories import History, profile
from tests.lifetimes.planted import DEFECTS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the histories")
    parser.add_argument("--plant", choices=[*DEFECTS, "each"])
    args = parser.parse_args()
    if args.plant == "each":
        return max(_run([f"--count={args.count}", f"--plant={kind}"]).wait() for kind in DEFECTS)
    if args.jobs > 1:
        jobs = [_run([f"--count={args.count // args.jobs}"]) for _ in range(args.jobs)]
        return max(job.wait() for job in jobs)
    return _histories(args.count, args.plant)


def _run(arguments: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "tests.lifetimes", *arguments])


def _histories(count: int, plant: str | None) -> int:
    structlog.configure(processors=[_drop])  # and no level, which reloads set
    if plant:
        DEFECTS[plant]()
    History.tell = staticmethod(_say)
    began = time.monotonic()
    try:
        run_state_machine_as_test(History, settings=profile(count, derandomize=False, shrink=plant is None))
        found = None
    except BaseException as error:
        if not plant:
            raise
        found = _words_of(error)
    seconds = time.monotonic() - began
    sys.stdout.write(f"{History.tried} histories, {History.verbs} verbs, {seconds:.0f} s")
    sys.stdout.write(f": {plant} {'found: ' + found if found else 'NOT FOUND'}\n" if plant else ": no rule broken\n")
    sys.stdout.flush()
    os._exit(int(bool(plant) and not found))  # what a planted defect has left behind is not waited for


def _drop(*_: object) -> NoReturn:
    raise structlog.DropEvent


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def _words_of(error: BaseException) -> str:
    """The first line of the innermost error."""
    while nested := getattr(error, "exceptions", None):  # a group, of Python 3.11 or its stand-in
        error = nested[0]
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:150]


if __name__ == "__main__":
    sys.exit(main())
