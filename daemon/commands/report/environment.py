"""The environment of a report."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from daemon.clock import SystemClock, utc_text
from daemon.errors import LookoutError
from daemon.monitoring.probes import driver_version, open_gpu_probe
from daemon.redact import redact_url
from daemon.system.gpus import name_visible_gpus
from detectors.factory import PACKAGES
from detectors.model import digest_of

_PACKAGES = ("lookoutd", "numpy", "av", "opencv-python-headless", "pyzmq", "msgspec", "onnx", *PACKAGES)


@dataclass(frozen=True)
class Environment:
    """Versions and hardware behind a report's figures.

    Attributes:
        packages: versions of installed packages, by name.
        gpu, driver: None without a GPU.
        files: SHA-256 of clips and model, by name.
        command: the command's arguments.
    """

    made_at: str
    host: str
    cpu: str
    cores: int
    memory_gib: float
    python: str
    packages: dict[str, str]
    gpu: str | None
    driver: str | None
    files: dict[str, str]
    command: list[str]


def collect_environment(files: Sequence[Path], device: int = 0) -> Environment:
    """The present environment.

    Args:
        files: files that the figures depend on.
        device: number of the GPU.

    Raises:
        LookoutError: a file cannot be read.
    """
    name_visible_gpus()  # otherwise the number may mean another GPU
    with closing(open_gpu_probe()) as probe:
        rows = (probe.read() or [])[device : device + 1]
    packages = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            packages[name] = version(name)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return Environment(
        made_at=utc_text(SystemClock().utc_ns()),
        host=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(memory, 1),
        python=platform.python_version(),
        packages=packages,
        gpu=rows[0].name if rows else None,
        driver=driver_version(),
        files={file.name: digest_of(file) if file.suffix == ".onnx" else _sha256(file) for file in files},
        command=["lookout", *(Path(word).name if word.startswith("/") else redact_url(word) for word in sys.argv[1:])],
    )


def _cpu() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise LookoutError(f"{path} cannot be read: {error.strerror}") from error
