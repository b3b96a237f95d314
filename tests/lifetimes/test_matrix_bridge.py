"""Each pair of things that happen to a bridge: the second begins before the first is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bridge.publisher import EventSource
from tests.bridge.rig import Rig
from tests.lifetimes.bridge_verbs import VERBS, World, check

_DESIGNED = [
    ("broker away", "reload"),
    ("broker away", "spool full"),
    ("broker away", "camera renamed"),
    ("target removed", "broker away"),
    ("gap", "journal pruned"),
    ("window in flight", "bridge restarts"),
    ("window in flight", "reload"),
    ("gap", "daemon restarts"),
]
_REST = [(first, second) for first in VERBS for second in VERBS if (first, second) not in _DESIGNED]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with EventSource(["door", "yard"]) as source:
        rig = Rig(tmp_path, source, [{"name": "stays"}, {"name": "goes"}], spool_mib=1)
        found = World(rig, source)
        with rig:
            rig.wait_until(rig.is_following)
            source.emit(3)
            rig.wait_until(lambda: rig.account("stays").delivered == 3)
            yield found


def _go(world: World, first: str, second: str) -> None:
    try:
        ends = [VERBS[first](world), VERBS[second](world)]
        for end in ends:
            end()
        check(world)
    except AssertionError as error:
        raise AssertionError(f"{first}, and {second} meanwhile: {error}") from error


@pytest.mark.parametrize(("first", "second"), _DESIGNED, ids=lambda name: name.replace(" ", "-"))
def test_what_was_designed_for(world: World, first: str, second: str) -> None:
    _go(world, first, second)


@pytest.mark.long
@pytest.mark.parametrize(("first", "second"), _REST, ids=lambda name: name.replace(" ", "-"))
def test_every_other_pair(world: World, first: str, second: str) -> None:
    _go(world, first, second)
