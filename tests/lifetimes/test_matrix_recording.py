"""Each pair of verbs of recording, and in the long run each of them with every verb after which a daemon goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from time import time_ns

import pytest

from tests.lifetimes.matrix import go_on
from tests.lifetimes.past_verbs import PAST_VERBS, wait_old
from tests.lifetimes.recording_verbs import RECORDING_VERBS, store_of
from tests.lifetimes.rig import Rig, wait_until
from tests.lifetimes.verbs import ENDING, VERBS, Verb, put_back
from tests.support.stored import Stored

pytestmark = pytest.mark.slow
_EVERY: Mapping[str, Verb] = {**VERBS, **RECORDING_VERBS}
_OTHERS = [name for name in VERBS if name not in ("start", *ENDING)]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One daemon for all pairs. Its files are whole at the end, and its timeline is, too."""
    folder = tmp_path_factory.mktemp("recording")
    rig = Rig(folder, store=folder / "store")
    with rig.signals():
        rig.start()
        rig.wait_ready()
        began = time_ns()
        yield rig
        _wait_recorded(rig)
        ended = time_ns()
        rig.app.request_stop()
    rig.end()
    stored = Stored(folder / "store")
    stored.check_whole("rec", began + 10**10, ended)
    stored.check_sound()


def _wait_recorded(rig: Rig) -> None:
    """It is recorded what comes now."""
    store = store_of(rig)

    def written() -> int:
        return sum(row.written for row in store.figures.accounts if row.source == "rec" and row.cause is None)

    before = written()
    wait_until(lambda: written() != before and written() > 0, "it is recorded again", lambda: store.figures)


@pytest.mark.parametrize("first", PAST_VERBS)
def test_it_records_on_while_somebody_looks(recording: Rig, first: str) -> None:
    for second in PAST_VERBS:
        wait_old(recording)
        go_on(recording, PAST_VERBS, (first, second), put_back)
    _wait_recorded(recording)


@pytest.mark.parametrize("first", RECORDING_VERBS)
def test_it_records_on(recording: Rig, first: str) -> None:
    for second in RECORDING_VERBS:
        go_on(recording, _EVERY, (first, second), put_back)
    _wait_recorded(recording)


@pytest.mark.long
@pytest.mark.parametrize("first", RECORDING_VERBS)
def test_it_records_on_beside_all(recording: Rig, first: str) -> None:
    for other in _OTHERS:
        go_on(recording, _EVERY, (first, other), put_back)
        go_on(recording, _EVERY, (other, first), put_back)
        _wait_recorded(recording)
