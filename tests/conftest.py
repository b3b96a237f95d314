"""Fixtures, and what tests need that a machine may lack: a skip says what; LOOKOUT_FORBID_SKIP makes it an error."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from daemon.config import PublisherConfig
from tests.support import booted, clips, rtsp
from tests.support.clock import ManualClock

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("LOOKOUT_TEST_DATA", ROOT.parent / "shared" / "data"))

BINDINGS = Path(os.environ.get("LOOKOUT_TRT_BINDINGS", ROOT / ".trt-bindings"))
TRITON = Path(os.environ.get("LOOKOUT_TRITON", ROOT / ".triton"))

# CI tries the same examples every time: what it refuses, it refuses again. Elsewhere they are new each time. On a busy
# machine an example may take any time.
settings.register_profile("any", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("LOOKOUT_FORBID_SKIP") else "any")


# One place for all daemons that tests start, each of which has a cache of its own: to compile takes ten seconds.
os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".pytest_cache" / "numba"))


# A shell that starts something in the background has it ignore SIGINT, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


_PROGRAMS = {name: name for name in ("ffmpeg", "g++", "chromium", "promtool", "firefox-esr")}
_PROGRAMS |= {"systemd": "systemd-analyze", "etcd-server": "etcd", "etcd-client": "etcdctl", "openssl": "openssl"}
_NVCUVID = Path("/usr/include/ffnvcodec/dynlink_nvcuvid.h")
_PATHS = {
    "data": (DATA, f"test data is not at {DATA}: set LOOKOUT_TEST_DATA"),
    "bindings": (BINDINGS, f"TensorRT's bindings are not in {BINDINGS}: .ci/run fetches them"),
    "triton": (TRITON, f"Triton's server is not in {TRITON}: .ci/run fetches it"),
    "nvcuvid": (_NVCUVID, f"{_NVCUVID} is missing: apt install libffmpeg-nvenc-dev"),
}
_MODULES = {
    "nvtx": (("nvtx",), "nvtx is not installed: pip install '.[nvtx]'"),
    "trackeval": (("trackeval", "scipy"), "TrackEval is not installed: pip install '.[tracking]'"),
    "playwright": (("playwright", "axe_playwright_python"), "Playwright is not installed: .ci/run has the command"),
}
_REASONS = {"booted": booted.unsupported_reason, "mounts": booted.no_mount_reason}

_LACKING = pytest.StashKey[str]()  # why a test that may not be skipped cannot run


def _missing(thing: str) -> str | None:
    if thing in _PATHS:
        path, words = _PATHS[thing]
        return None if path.exists() else words
    if thing in _PROGRAMS:
        return None if shutil.which(_PROGRAMS[thing]) else f"{_PROGRAMS[thing]} is missing: apt install {thing}"
    if thing == "cores":
        return None if len(os.sched_getaffinity(0)) > 1 else "there is one core, and none to go to from it"
    if thing in _MODULES:
        modules, words = _MODULES[thing]
        return None if all(map(find_spec, modules)) else words
    if thing in _REASONS:
        return _REASONS[thing]()
    if thing == "rtsp":
        return _missing("ffmpeg") or rtsp.unsupported_reason()
    raise ValueError(f"unknown need {thing!r}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
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
        for mark in item.iter_markers("needs"):
            for reason in filter(None, map(_missing, mark.args)):
                if os.environ.get("LOOKOUT_FORBID_SKIP"):
                    item.stash[_LACKING] = reason
                else:
                    item.add_marker(pytest.mark.skip(reason=reason))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests fail one by one: pytest-xdist does not tell of an error while its processes collect."""
    if reason := item.stash.get(_LACKING, None):
        pytest.fail(f"may not be skipped: {reason}", pytrace=False)


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
