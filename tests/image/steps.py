"""Steps of a try on another Debian: each with what came of it, and how long it took."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from time import monotonic

Way = tuple[str, str]  # to boxes, and from what


class Steps:
    """What was done, and what came of it."""

    def __init__(self) -> None:
        self.failed = 0
        self._seconds: dict[Way, float] = {}
        self._broken: set[Way] = set()

    def take(self, what: str, step: Callable[[], object], ways: Iterable[Way] = ()) -> bool:
        """Whether it neither raised nor returned False.

        Args:
            ways: those that it is a part of.
        """
        began = monotonic()
        try:
            is_good, reason = step() is not False, ""
        except (AssertionError, subprocess.SubprocessError) as error:
            is_good, reason = False, f": {error}"
        self.failed += not is_good
        seconds = monotonic() - began
        for way in ways:
            self._seconds[way] = self._seconds.get(way, 0) + seconds
            self._broken |= set() if is_good else {way}
        sys.stdout.write(f"{'good' if is_good else 'FAILED'}, {seconds:.0f} s: {what}{reason}\n")
        sys.stdout.flush()
        return is_good

    def stopwatch(self) -> Iterator[str]:
        """A line for each way to boxes: seconds from its first command on."""
        for (what, how), seconds in self._seconds.items():
            took = "no boxes" if (what, how) in self._broken else f"{seconds:.0f} s"
            yield f"{what:28} {how:32} {took:>9}"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of each try on another Debian."""
    parser.add_argument("--suite", default="bookworm", help="of Debian, such as trixie")
    parser.add_argument("--mirror", help="of Debian; left out: apt's")
    parser.add_argument("--volume", action="append", default=[], help="folder or file of this machine to be seen there")
    parser.add_argument("--env", action="append", default=[], help="NAME=VALUE for its user")
