"""GPUs by name: a number means different GPUs to the driver, to a service that sees fewer of them, and to NVML.

With `CUDA_VISIBLE_DEVICES=1` a process sees one GPU, as number 0. A service that was started with the variable has one
GPU, number 0; a client with the same variable asks it for number 1, and gets none. Names (`GPU-...`, as `nvidia-smi -L`
prints them) are unambiguous.
"""

from __future__ import annotations

import os
import subprocess
import sys

from detectors.factory import gpus

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_NAMES_TIMEOUT_S = 60.0


def visible_gpus() -> list[str] | None:
    """Names of the GPUs that this process and its children see, in the driver's order; None if unknown."""
    names = [name.strip() for name in os.environ.get(_VARIABLE, "").split(",")]
    return names if all(name.startswith(("GPU-", "MIG-")) for name in names) else None


def name_visible_gpus() -> str | None:
    """Put GPU names into the environment if numbers are ambiguous. Returns the reason if that fails, None otherwise.

    Call it before this process uses a GPU. A child process asks the driver, because the driver reads the variable only
    once in a process.
    """
    if visible_gpus() is not None or (_VARIABLE not in os.environ and gpus() < 2):
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
