"""Ordered pairs of verbs: the second begins while the first is held at its critical moment.

Pairs with `start`, `stop` and SIGTERM have a daemon each, and a file each, so that processes share them; the others
have one daemon for all. The end by a death of the rules' process is a file of its own, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeVar

from daemon.monitoring.health import PART_FAILED
from tests.lifetimes.analysis_verbs import ANALYSIS_VERBS, End
from tests.lifetimes.rig import Analysis, Rig, wait_until
from tests.lifetimes.verbs import ENDING, VERBS

Pair = tuple[str, str]
_Rig = TypeVar("_Rig", bound=Rig)
AT_ONCE: Pair = ("SIGTERM", "SIGTERM")
"""The pair that ends the process silently; it runs in a process of its own."""


def pairs_with(verb: str, without: Collection[str] = ()) -> list[Pair]:
    """Ordered pairs of a verb with itself and with all others but `without`."""
    others = [name for name in VERBS if name not in without and name != verb]
    return [(verb, verb), *((verb, name) for name in others), *((name, verb) for name in others)]


def analysis_of(first: str, second: str) -> Analysis:
    """What a daemon needs for these verbs."""
    names = {first, second}
    if names & {"rules hang", "rules die"}:
        return "apart"
    return "here" if names & {*ANALYSIS_VERBS} - {"page"} else "none"


def go_on(
    rig: _Rig, verbs: Mapping[str, Callable[[_Rig, bool], End]], pair: Pair, put_back: Callable[[_Rig], None]
) -> None:
    """A daemon goes on as its configuration says, and has its threads again after `put_back`."""
    first, second = pair
    try:
        rig.check_running()
        end_first = verbs[first](rig, True)
        end_second = verbs[second](rig, False)
        end_first()
        end_second()
        rig.check_running()
        put_back(rig)
        rig.check_threads()
    except AssertionError as error:
        rig.open_all()
        raise AssertionError(f"{first}, and {second} meanwhile: {error}") from error


def begin_or_end(folder: Path, first: str, second: str) -> None:
    """A daemon starts or ends well beside every other verb."""
    rig = Rig(folder, analysis=analysis_of(first, second))
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
            if "rules die" in (first, second):
                wait_until(lambda: rig.app.is_stopping, "it ends")
            rig.app.request_stop()
        rig.end(*_codes(first, second))
    except AssertionError as error:
        rig.open_all()
        rig.app.stop()
        raise AssertionError(f"{first}, and {second} meanwhile: {error}") from error


def _codes(first: str, second: str) -> tuple[int, ...]:
    """Exit codes. Who comes first is not known where the rules' process dies beside a stop."""
    if "rules die" not in (first, second):
        return (0,)
    return (0, PART_FAILED) if {first, second} & {"stop", "SIGTERM"} else (PART_FAILED,)
