"""The fleet's verbs beside each other, beside the others, and beside the end of the daemon; see matrix.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lifetimes.fleet_rig import FLEET_VERBS, FleetRig
from tests.lifetimes.matrix import go_on
from tests.lifetimes.verbs import VERBS

pytestmark = pytest.mark.slow
_OTHERS = ["SIGHUP", "model swap", "worker dies", "library hangs", "NVML hangs", "subscriber stalls", "watch"]
"""Verbs of a daemon whose sources come from a fleet: `add` and the like are the operator's."""
_ALL = {**{name: VERBS[name] for name in _OTHERS}, **FLEET_VERBS}
_PAIRS = [
    *((first, second) for first in FLEET_VERBS for second in _ALL),
    *((first, second) for first in _OTHERS for second in FLEET_VERBS),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetRig]:
    """One daemon for all pairs."""
    rig = FleetRig(tmp_path_factory.mktemp("fleet"))
    with rig.signals():
        rig.start()
        rig.wait_ready()
        yield rig
        rig.app.request_stop()
    rig.end()


@pytest.mark.share(4)
@pytest.mark.parametrize(("first", "second"), _PAIRS)
def test_it_goes_on(running: FleetRig, first: str, second: str) -> None:
    """Afterwards it runs what is wanted here, and nothing else."""
    go_on(running, _ALL, (first, second), _put_back)


def _put_back(rig: FleetRig) -> None:
    rig.put_back()
    rig.check_running()


@pytest.mark.share(3)
@pytest.mark.parametrize("ending", ["SIGTERM", "stop"])
@pytest.mark.parametrize("first", FLEET_VERBS)
def test_it_ends_well(tmp_path: Path, first: str, ending: str) -> None:
    rig = FleetRig(tmp_path)
    try:
        with rig.signals():
            rig.start()
            rig.wait_ready()
            rig.check_running()
            end_first = FLEET_VERBS[first](rig, True)
            end_second = VERBS[ending](rig, False)
            end_first()
            end_second()
            rig.app.request_stop()
        rig.end()
    except AssertionError as error:
        rig.open_all()
        rig.app.stop()
        raise AssertionError(f"{first}, and {ending} meanwhile: {error}") from error


def test_it_starts_beside_an_end(tmp_path: Path) -> None:
    """It is stopped while it joins."""
    rig = FleetRig(tmp_path)
    with rig.signals():
        rig.calls["join"].close()
        rig.start()
        rig.calls["join"].wait_for_one()
        end = VERBS["stop"](rig, False)
        rig.calls["join"].open()
        end()
    rig.end()
