"""Fixtures; the tests that run here, and their order."""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import structlog
from hypothesis import given, settings, strategies

from daemon.config.publisher import PublisherConfig
from tests.support import clips, needs
from tests.support.clock import ManualClock
from tests.support.needs import DATA, NEEDS

ROOT = Path(__file__).resolve().parents[1]

# CI tries the same examples every time: what it refuses, it refuses again. Elsewhere they are new each time. On a busy
# machine an example may take any time.
settings.register_profile("any", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("LOOKOUT_FORBID_SKIP") else "any")


# One place for all daemons that tests start, each of which has a cache of its own: to compile takes ten seconds.
os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".pytest_cache" / "numba"))


# Not that of the host, which daemons use that are no part of a test.
_HOST_FOLDER = ROOT / ".pytest_cache" / "host"
_HOST_FOLDER.mkdir(parents=True, exist_ok=True)
os.environ.setdefault("LOOKOUT_HOST_FOLDER", str(_HOST_FOLDER))


# A shell that starts something in the background has it ignore SIGINT, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# What modules and tests are made of stays until the end: to look through it for garbage, again and again while it grows
# and then with all that a test makes, takes a tenth of the time of small tests.
gc.disable()


@given(strategies.none())
def _first_example(_: None) -> None:
    """At the first example of all, Hypothesis looks who holds its random numbers, among objects that are not frozen."""


def pytest_collection_finish() -> None:
    _first_example()
    gc.freeze()
    gc.enable()


_SHARED_OUT = ("tests/detectors/test_trt.py::", "tests/integration/test_rtsp.py::")
_LACKING = "lacking"  # property of a test's report: a name of NEEDS


@pytest.hookimpl(tryfirst=True)  # before pytest itself looks for `-m long`
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _share(items)
    unasked = [name for name in ("long", "speed") if name not in config.option.markexpr]
    left_out = [item for item in items if any(item.get_closest_marker(name) for name in unasked)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
    # Files that take long come first, so that no process is left with one while the others have nothing to do.
    slow = Counter[Path]()
    for item in items:
        if mark := item.get_closest_marker("slow"):
            slow[item.path] += mark.args[0] if mark.args else 1
    items.sort(key=lambda item: -slow[item.path])
    for item in items:
        needed = sorted({name for mark in item.iter_markers("needs") for name in mark.args})
        item.user_properties += [(_LACKING, name) for name in needed if not _is_here(name)]


def _share(items: list[pytest.Item]) -> None:
    """Of each test that is marked `share(n)`, all but a share of its cases are `long`: always the same, whichever
    others there are."""
    cases: dict[str, list[tuple[int, pytest.Item]]] = {}
    for item in items:
        if item.get_closest_marker("share"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append((crc32(item.nodeid.encode()), item))
    for rows in cases.values():
        least = min(row[0] for row in rows)
        for number, item in rows:
            (count,) = item.get_closest_marker("share").args  # type: ignore[union-attr]
            if number % count and number != least:
                item.add_marker(pytest.mark.long)


@cache
def _is_here(name: str) -> bool:
    return NEEDS[name].is_here()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Processes take whole files, whose tests share what takes long to make, and single tests of `_SHARED_OUT`."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if nodeid.startswith(_SHARED_OUT) else str(super()._split_scope(nodeid))

    return Scheduling(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips, or fails one by one: pytest-xdist does not tell of an error while its processes collect."""
    for _, name in filter(lambda row: row[0] == _LACKING, item.user_properties):
        if os.environ.get("LOOKOUT_FORBID_SKIP"):
            pytest.fail(f"may not be skipped: {name} is not here: {NEEDS[str(name)]}", pytrace=False)
        pytest.skip(f"{name} is not here: {NEEDS[str(name)]}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.getreports("skipped")
    lacking = Counter(str(value) for report in skipped for key, value in report.user_properties if key == _LACKING)
    if lacking:
        terminalreporter.section("what is not here")
        terminalreporter.write("\n".join(needs.report(lacking)) + "\n")


@pytest.fixture
def data() -> Path:
    """The folder of real models, clips and photos; the test must be marked needs("data")."""
    return DATA


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(autouse=True)
def _quiet_log() -> Iterator[None]:
    """Logs of code under test go nowhere unless a test asks for them."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session", autouse=True)
def _usual_port() -> Iterator[None]:
    """The port that a daemon has unless told otherwise is taken: a test that forgets to tell fails by itself, and not
    now and then, beside another; nor does a Lookout disturb that works on this machine."""
    with socket.socket() as taken:
        with suppress(OSError):  # another process of this run, or a Lookout, has it
            taken.bind(("127.0.0.1", int(PublisherConfig().endpoint.rpartition(":")[2])))
            taken.listen()
        yield


@pytest.fixture(scope="session")
def folder_of_all(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of this run: where tests are shared out among processes, each has a folder of its own in it."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def clip(folder_of_all: Path) -> Path:
    """Three seconds of 320x180 at 15 fps, H.264 in Matroska; the test must be marked needs("ffmpeg")."""
    return clips.once(folder_of_all, "clip.mkv", partial(clips.pattern, seconds=3))


@pytest.fixture(scope="session")
def long_clip(folder_of_all: Path) -> Path:
    """Five minutes of the same, for servers that must not come to the end."""
    return clips.once(folder_of_all, "long.mkv", partial(clips.pattern, seconds=300))
