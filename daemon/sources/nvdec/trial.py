"""Probes a GPU's decoder in a child process, because a broken driver may crash.

`python -m daemon.sources.nvdec.trial DEVICE` is that process.
"""

from __future__ import annotations

import base64
import subprocess
import sys

import msgspec

from daemon.sources.decode import UnsuitableError
from daemon.sources.nvdec.capability import Capability

_TRIAL_TIMEOUT_S = 30
# Two pictures in H.264: ffmpeg -f lavfi -i testsrc2=size=320x192:rate=30 -frames:v 2 -c:v libx264 -crf 48 -bf 0
_SAMPLE = base64.b64decode(
    "AAAAAWdkAA2ssgKDNgIgAAADACAAAAeB4oVJAAAAAWjrwFksiwAAAWWIhDcpJkJBxQvU7NOflu8i63LYuA0mJa60Gjf9LodkvlfFH4ZxIDa3W4tK"
    "AFnbpXgheQ3mwn5o7aZH5v136gHmKfBe7oUnJP+zdPBlsbEm7OgN6OWldtKBXKk0msGbYBioi25B5bQBj8IDRBEVy4V/o9HKJb5G38I2lKvuH/l1"
    "M5iJxwa1H8ttxAEEU3WOLtglSh4W5VUgY/ttztqfwyqOPbSBXRlakI/HbM3ozVbHvVu5SCC3spSgLPeV/VYHhH/YuZbx6LR/dX4IuLhvmrD+NEfW"
    "T2GekHCRPV/z0P1q2Xgfi7oJT8y694Pr5stgOSLprwgLiyq516km/ccwns7eTTqLaxqFhxWaHI99il0gtP6qESrNBkSGcWxm5+rAvNq5Otj3M9oo"
    "M0rYwB1hAEst0xRgGuGPhapN8R2tSmXM5WI1y5ClzfmMn3/MZIZKV1rw23HzCJAmmbKBpAtj/+POIxtzsQlMEmCgVagtnb0DHNPCoH1bNcg7+GBN"
    "be0738gZgO7+BmokL8owIVb48XbGUxE/bzd+Cd0M0NffdRcCTAylhHUPdU9ZctcbJ+J20IeUtCfvGi6mtu10hiAuYGLbmh/jSTrPztUkKEIzEpOM"
    "12Jqf6JRBliXIs53A7wZ/NZ5bc9XuidSUoKxQr2577gxE3Qkr+zH7DS9CcfUpyIFfbtoij+ksUmyp1G1fu2D08QYkyVAOFjGtY6BAAAAAUGaOxN/"
    "9DXgPUFHG4QyAofMOGYGRf+B36HjQkiIOVmSQp83XVDQHX/7aAbUwXyoY7WO4ZGGS+oc2j8AhnaGLIwm5ju3s1KedkNzTlzqujqrm/I1lV5kC7JO"
    "c/9vSQqRt7/lOcKZ1Z6xn2G6jYuJMZ0uAbDsHMzZw9tZTLiwDP9r3eFzN1Og"
)


def probe(device: int) -> Capability:
    """Decode one picture on a GPU, in a child process.

    Raises:
        UnsuitableError: the decoder does not work; says why.
    """
    command = [sys.executable, "-m", __spec__.name, str(device)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TRIAL_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise UnsuitableError(f"the GPU's decoder gave no picture within {_TRIAL_TIMEOUT_S} s") from error
    lines = (done.stderr if done.returncode else done.stdout).strip().splitlines() or [""]
    if done.returncode:
        ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        raise UnsuitableError(f"the GPU's decoder failed its trial ({ended}): {lines[-1] or 'no message'}")
    return msgspec.json.decode(lines[-1], type=Capability)


def _main(device: int) -> int:
    try:
        from daemon.sources.nvdec.session import Engines

        engines = Engines(device)
    except ImportError as error:
        sys.stderr.write(f"{error}; pip install 'lookoutd[gpu]'\n")
        return 1
    except OSError as error:
        message = f"NVIDIA's decoder does not load: {error}; it comes with the driver, and a container has it where"
        sys.stderr.write(f"{message} NVIDIA_DRIVER_CAPABILITIES has video\n")
        return 1
    capability = engines.capability()
    if "h264" in capability.codecs:
        session = engines.session("h264", low_latency=True, surfaces=1)
        shown = [*session.decode_bytes(_SAMPLE), *session.drain()]
        image = shown[0][0](False, False) if shown else None
        if image is None or (image.width, image.height) != (320, 192):
            sys.stderr.write("the decoder gave no picture for a valid stream\n")
            return 1
        del image, shown
        session.close()
    engines.close()
    sys.stdout.write(msgspec.json.encode(capability).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(_main(int(sys.argv[1])))
