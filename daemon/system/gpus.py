"""GPUs by name. A number means one GPU to the driver, another to a service that sees fewer, and a third to NVML.

`CUDA_VISIBLE_DEVICES=1` shows a process one GPU, as number 0. A service that was started with the variable has one GPU
to offer, number 0; a client that has the variable too asks it for number 1, and gets none. Names (`GPU-...`, as
`nvidia-smi -L` prints them) mean the same to all.
"""

from __future__ import annotations

import os
import subprocess
import sys

from detectors.factory import gpus

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_NAMES_TIMEOUT_S = 60.0


def visible() -> list[str] | None:
    """The GPUs that this process and its children see, by name and in the driver's order; None where nobody knows."""
    names = [name.strip() for name in os.environ.get(_VARIABLE, "").split(",")]
    return names if all(name.startswith(("GPU-", "MIG-")) for name in names) else None


def name_visible() -> str | None:
    """From here on GPUs have names, if numbers could be mistaken; why that cannot be, None if they have.

    To be called before this process uses one. The driver is asked by a process of its own: once asked here it would go
    on with what the variable says now.
    """
    if visible() is not None or (_VARIABLE not in os.environ and gpus() < 2):
        return None
    command = [sys.executable, "-m", __spec__.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_NAMES_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the driver does not answer: {error}"
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return lines[-1] if lines else f"ended with {done.returncode}"
    os.environ[_VARIABLE] = done.stdout.strip()
    return None


def _main() -> int:
    from detectors.port import DetectorError

    try:
        from detectors.cuda import uuids

        sys.stdout.write(",".join(uuids()))
    except (ImportError, DetectorError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
