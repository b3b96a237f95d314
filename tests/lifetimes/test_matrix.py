"""Every ordered pair of verbs: the second begins while the first is held at its critical moment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lifetimes.rig import Rig
from tests.lifetimes.verbs import ENDING, VERBS, put_back
from tests.support.daemon import ROOT

_RUNNING = [name for name in VERBS if name not in ("start", *ENDING)]
_AT_ONCE = ("SIGTERM", "SIGTERM")
"""The one pair that ends the process without a word; it is tried in another."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One daemon for all pairs after which it goes on."""
    rig = Rig(tmp_path_factory.mktemp("running"))
    with rig.signals():
        rig.start()
        rig.wait_ready()
        yield rig
        rig.app.request_stop()
    rig.end()


@pytest.mark.parametrize("first", _RUNNING)
def test_a_daemon_that_goes_on(running: Rig, first: str) -> None:
    """Afterwards all is as the configuration says, and after `put_back` as it was."""
    for second in _RUNNING:
        try:
            running.check_running()
            end_first = VERBS[first](running, True)
            end_second = VERBS[second](running, False)
            end_first()
            end_second()
            running.check_running()
            put_back(running)
            running.check_threads()
        except AssertionError as error:
            running.open_all()
            raise AssertionError(f"{first}, and {second} meanwhile: {error}") from error


@pytest.mark.parametrize("first", list(VERBS))
def test_a_daemon_that_begins_or_ends(tmp_path: Path, first: str) -> None:
    """Of each pair with `start`, `stop` or SIGTERM: it ends well, whatever else happens."""
    seconds = VERBS if first in ("start", *ENDING) else ("start", *ENDING)
    for second in seconds:
        if (first, second) != _AT_ONCE:
            folder = tmp_path / second
            folder.mkdir()
            begin_or_end(folder, first, second)


def begin_or_end(folder: Path, first: str, second: str) -> None:
    rig = Rig(folder)
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


def test_a_second_sigterm_ends_the_process_at_once(tmp_path: Path) -> None:
    """Though a lane does not come back from the detector, and the first signal waits for it."""
    code = "import sys, pathlib; from tests.lifetimes.test_matrix import begin_or_end; "
    code += f"begin_or_end(pathlib.Path(sys.argv[1]), *{_AT_ONCE!r})"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, check=False, timeout=100)
    assert done.returncode == 143
