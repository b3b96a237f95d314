"""What tests need that a machine may lack, and where it comes from.

A test that lacks something is skipped, and counted at the end. LOOKOUT_FORBID_SKIP makes that an error: CI installs
everything.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.support import booted, rtsp
from tests.support.small_disk import can_loop

_ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("LOOKOUT_TEST_DATA", _ROOT.parent / "shared" / "data"))
BINDINGS = Path(os.environ.get("LOOKOUT_TRT_BINDINGS", _ROOT / ".trt-bindings"))
OPENVINO = Path(os.environ.get("LOOKOUT_ORT_OPENVINO", _ROOT / ".ort-openvino"))
RTX = Path(os.environ.get("LOOKOUT_TRT_RTX", _ROOT / ".trt-rtx"))
TRITON = Path(os.environ.get("LOOKOUT_TRITON", _ROOT / ".triton"))
HOMEASSISTANT = Path(os.environ.get("LOOKOUT_HOMEASSISTANT", _ROOT / ".homeassistant"))
_NVCUVID = Path("/usr/include/ffnvcodec/dynlink_nvcuvid.h")

APT = "apt install --no-install-recommends"
# Without what they ask for: TrackEval's would replace Lookout's build of OpenCV.
PIP = f"{os.path.relpath(sys.executable, _ROOT)} -m pip install --no-deps"


@dataclass(frozen=True)
class Need:
    """One thing.

    Attributes:
        is_here: whether this machine has it.
        apt: Debian packages that bring it.
        pip: requirements that bring it.
        otherwise: how it comes here, where packages do not bring it.
    """

    is_here: Callable[[], bool]
    apt: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    otherwise: str = ""

    def __str__(self) -> str:
        return self.otherwise or ", ".join([*self.apt, *self.pip])


def _program(name: str, *packages: str) -> Need:
    return Need(lambda: shutil.which(name) is not None, packages or (name,))


def node() -> str | None:
    """Node.js: the machine's, or the one that Playwright brings."""
    playwright = find_spec("playwright")
    brought = Path(playwright.origin).parent / "driver" / "node" if playwright and playwright.origin else None
    return shutil.which("node") or (str(brought) if brought and brought.exists() else None)


def _server(name: str) -> Need:
    """Debian has some of them where only root looks."""
    return Need(lambda: shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is not None, (name,))


def _has_debians_venv() -> bool:
    """Whether Debian's own Python makes environments, as `make deb` does."""
    probe = ["/usr/bin/python3", "-c", "import ensurepip, venv"]
    with suppress(OSError):
        return subprocess.run(probe, capture_output=True, check=False).returncode == 0
    return False


def _modules(names: Iterable[str], *requirements: str) -> Need:
    return Need(lambda: all(map(find_spec, names)), pip=requirements)


NEEDS = {
    "ffmpeg": _program("ffmpeg"),
    "rtsp": Need(
        rtsp.is_supported,
        ("python3-gi", "gir1.2-gstreamer-1.0", "gir1.2-gst-rtsp-server-1.0", "gstreamer1.0-plugins-base",
         "gstreamer1.0-plugins-good"),
    ),
    "g++": _program("g++"),
    "groff": _program("groff", "groff-base"),
    "nvcuvid": Need(_NVCUVID.exists, ("libffmpeg-nvenc-dev",)),
    "chromium": _program("chromium", "chromium", "fonts-dejavu-core"),
    "firefox-esr": _program("firefox-esr"),
    "promtool": _program("promtool", "prometheus"),
    "dpkg-deb": Need(lambda: shutil.which("dpkg-deb") is not None, otherwise="Debian, or the like"),
    "debian's venv": Need(_has_debians_venv, otherwise="Debian's own Python, with python3-venv"),
    "systemd": _program("systemd-analyze", "systemd"),
    "systemd-container": _program("systemd-nspawn", "systemd-container"),
    "etcd-server": _program("etcd", "etcd-server"),
    "etcd-client": _program("etcdctl", "etcd-client"),
    "nats-server": _server("nats-server"),
    "redis-server": _server("redis-server"),
    "openssl": _program("openssl"),
    "node": Need(lambda: node() is not None, otherwise="Node.js, which Playwright brings"),
    "mosquitto": _server("mosquitto"),
    "home assistant": Need(
        (HOMEASSISTANT / "bin" / "hass").exists,
        otherwise="python -m tests.homeassistant FOLDER, and the folder in LOOKOUT_HOMEASSISTANT",
    ),
    "playwright": _modules(
        # This is the last Playwright that drives Debian's Firefox as well.
        ("playwright", "greenlet", "pyee", "axe_playwright_python"),
        "playwright==1.61.0", "greenlet", "pyee", "axe-playwright-python",
    ),
    "trackeval": _modules(("trackeval", "scipy"), "trackeval==1.3.0", "scipy"),
    "supervision": _modules(
        ("supervision", "defusedxml", "deprecate", "tqdm"), "supervision==0.31.2", "defusedxml", "pydeprecate", "tqdm"
    ),
    "opentelemetry": _modules(("opentelemetry",), "opentelemetry-proto"),
    "nvtx": Need(lambda: find_spec("nvtx") is not None, otherwise="lookoutd[nvtx]"),
    "data": Need(DATA.exists, otherwise="recordings and models in the folder that LOOKOUT_TEST_DATA names"),
    "bindings": Need(BINDINGS.exists, otherwise="TensorRT's Python modules, which .ci/run fetches"),
    "openvino": Need(OPENVINO.exists, otherwise="the onnxruntime with OpenVINO, which .ci/run fetches"),
    "tensorrt-rtx": Need(RTX.exists, otherwise="TensorRT RTX's Python module and libraries, which .ci/run fetches"),
    "triton": Need(TRITON.exists, ("libpython3-dev",), otherwise="Triton's server, which .ci/run fetches"),
    "mounts": Need(booted.can_mount, otherwise="a machine where this user may mount file systems"),
    "loop mounts": Need(can_loop, otherwise="a machine where this user may mount a file as a disk"),
    "cores": Need(lambda: len(os.sched_getaffinity(0)) > 1, otherwise="more than one core"),
}  # fmt: skip


def report(lacking: Counter[str]) -> Iterator[str]:
    """Lines about what is not here.

    Args:
        lacking: tests that wait for each name of `NEEDS`.
    """
    for name, count in lacking.most_common():
        yield f"{count:5} {'tests wait' if count > 1 else 'test waits'} for {name}: {NEEDS[name]}"
    yield from commands(lacking)


def commands(names: Iterable[str]) -> list[str]:
    """The one of apt and the one of pip, where they bring something of these names of `NEEDS`."""
    needs = [NEEDS[name] for name in names]
    apt, pip = {package for need in needs for package in need.apt}, {package for need in needs for package in need.pip}
    return [" ".join([command, *sorted(packages)]) for command, packages in ((APT, apt), (PIP, pip)) if packages]
