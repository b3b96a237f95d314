"""Ordered pairs of verbs: the second begins while the first is held at its critical moment.

Pairs with `start`, `stop` and SIGTERM have a daemon each, and a file each, so that processes share them; the others
have one daemon for all.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from tests.lifetimes.rig import Rig
from tests.lifetimes.verbs import ENDING, VERBS

Pair = tuple[str, str]
AT_ONCE: Pair = ("SIGTERM", "SIGTERM")
"""The pair that ends the process silently; it runs in a process of its own."""


def pairs_with(verb: str, without: Collection[str] = ()) -> list[Pair]:
    """Ordered pairs of a verb with itself and with all others but `without`."""
    others = [name for name in VERBS if name not in without and name != verb]
    return [(verb, verb), *((verb, name) for name in others), *((name, verb) for name in others)]


def begin_or_end(folder: Path, first: str, second: str) -> None:
    """A daemon starts or ends well beside every other verb."""
    rig = Rig(folder, rules="rules hang" in (first, second))
    try:
        with rig.signals():
            if first != "start":
                rig.start()
                rig.wait_ready()
                if first not in ENDING:
                    rig.check_running()
            end_first = VERBS[first](rig, True)
            end_second = VERBS[second](rig, False)
            end_first()
            end_second()
            if not {first, second} & set(ENDING):
                rig.check_running()
            rig.app.request_stop()
        rig.end()
    except AssertionError as error:
        rig.open_all()
        rig.app.stop()
        raise AssertionError(f"{first}, and {second} meanwhile: {error}") from error
