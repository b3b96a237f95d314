"""Each pair of verbs after which a daemon goes on; see matrix.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lifetimes.matrix import go_on, pairs_with
from tests.lifetimes.rig import Rig
from tests.lifetimes.verbs import ENDING, VERBS, put_back

pytestmark = pytest.mark.slow
_GOING_ON = [name for name in VERBS if name not in ("start", *ENDING)]
_PAIRS = [(first, second) for first in _GOING_ON for second in _GOING_ON]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One daemon for all pairs."""
    rig = Rig(tmp_path_factory.mktemp("running"), analysis="apart")
    with rig.signals():
        rig.start()
        rig.wait_ready()
        yield rig
        rig.app.request_stop()
    rig.end()


@pytest.mark.share(4)
@pytest.mark.parametrize(("first", "second"), _PAIRS)
def test_it_goes_on(running: Rig, first: str, second: str) -> None:
    """Afterwards the state matches the configuration; after `put_back` it is as before."""
    go_on(running, VERBS, (first, second), put_back)


def test_no_pair_is_left_out() -> None:
    tried = {*pairs_with("start"), *pairs_with("stop", without=["start"])}
    tried |= {*pairs_with("SIGTERM", without=["start", "stop"])}
    tried |= {*pairs_with("rules die", without=["start", "stop", "SIGTERM"])}
    tried |= {*_PAIRS}
    assert len(tried) == len(VERBS) ** 2 == 576
