"""A real Triton server with models in Python, which run the demo model by onnxruntime.

The server comes with nvidia-pytriton. It runs a model in a process of its own, with Debian's Python.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from ctypes.util import find_library
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.support.daemon import DEMO_MODEL, wait_until
from tests.support.needs import TRITON
from tests.support.ports import free_port

# Types and dimensions of the input, and the largest batch. All find the demo model's boxes.
PIXELS = ("TYPE_UINT8", "3, 320, 320", 8)
FLOATS = ("TYPE_FP32", "3, 320, 320", 8)
ROWS = ("TYPE_UINT8", "320, 320, 3", 1)  # channels last, one picture a request

_PATH = f"import sys; sys.path.insert(0, {str(TRITON)!r})\n"
_MODEL = f"""
import numpy as np
import onnxruntime
import triton_python_backend_utils as backend

class TritonPythonModel:
    def initialize(self, args):
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession({str(DEMO_MODEL)!r}, settings)

    def execute(self, requests):
        return [self.answer(backend.get_input_tensor_by_name(row, "images").as_numpy()) for row in requests]

    def answer(self, pictures):
        if pictures.dtype == np.uint8:
            if (pictures == 255).all():
                raise ValueError("a white picture")
            pictures = pictures.astype(np.float32) * np.float32(1 / 255)
        if pictures.shape[1] != 3:
            pictures = np.ascontiguousarray(pictures.transpose(0, 3, 1, 2))
        (found,) = self.session.run(None, {{"images": pictures}})
        return backend.InferenceResponse([backend.Tensor("output0", found)])
"""
_CONFIG = """
backend: "python"
max_batch_size: {batch}
input [{{ name: "images" data_type: {kind} dims: [{dims}] }}]
output [{{ name: "output0" data_type: TYPE_FP32 dims: [7, 2100] }}]
instance_group [{{ count: 1 kind: KIND_CPU }}]
parameters [
  {{ key: "names" value: {{ string_value: "{{0: 'person', 1: 'car', 2: 'bus'}}" }} }},
  {{ key: "task" value: {{ string_value: "detect" }} }},
  {{ key: "stride" value: {{ string_value: "32" }} }}
]
"""


class TritonServer:
    """The server, started, with models by name.

    Args:
        configs: configurations of further models, by name.
        code: of all models; None for the demo model.
        starts: start it now.
    """

    def __init__(
        self,
        folder: Path,
        configs: Mapping[str, str] | None = None,
        code: str | None = None,
        *,
        starts: bool = True,
        **models: tuple[str, str, int],
    ) -> None:
        self._code = code or _MODEL
        self.port, self._folder = free_port(), folder
        self._prefix = f"lookout_test_{self.port}_"
        self._process: subprocess.Popen[bytes] | None = None
        for name, (kind, dims, batch) in models.items():
            self.add(name, _CONFIG.format(kind=kind, dims=dims, batch=batch))
        for name, config in (configs or {}).items():
            self.add(name, config)
        backend = folder / "backends" / "python"
        shutil.copytree(_root() / "backends" / "python", backend)
        shutil.copy(_stub(), backend)
        (backend / "triton_python_backend_stub").chmod(0o755)
        if starts:
            self.start()

    def add(self, name: str, config: str) -> None:
        """Add a model, or change its configuration; the next start loads it."""
        (self._folder / "models" / name / "1").mkdir(parents=True, exist_ok=True)
        (self._folder / "models" / name / "config.pbtxt").write_text(config)
        (self._folder / "models" / name / "1" / "model.py").write_text(_PATH + self._code)

    def address(self, model: str) -> str:
        return f"http://127.0.0.1:{self.port}/{model}"

    def start(self, *options: str) -> None:
        command = [
            str(_root() / "bin" / "tritonserver"),
            f"--model-repository={self._folder / 'models'}",
            f"--backend-directory={self._folder / 'backends'}",
            "--http-address=127.0.0.1",
            f"--http-port={self.port}",
            "--allow-grpc=false",
            "--allow-metrics=false",
            "--exit-timeout-secs=1",
            f"--backend-config=python,shm-region-prefix-name={self._prefix}",
            *options,
        ]
        environment = {**os.environ, "LD_LIBRARY_PATH": str(TRITON / "nvidia_pytriton.libs")}
        while True:
            with (self._folder / "server.log").open("wb") as log:
                self._process = subprocess.Popen(
                    command, stdout=log, stderr=log, env=environment, start_new_session=True
                )
            with suppress(PermissionError):  # it calls a model dead that is not scheduled for a second
                os.setpriority(os.PRIO_PGRP, self._process.pid, -15)
            wait_until(lambda: self._has_crashed or self.is_ready(), "Triton is ready")
            if not self._has_crashed:
                return
            self.kill()

    @property
    def _has_crashed(self) -> bool:
        """Whether the server has aborted in its own locks, as it does now and then where its models begin slowly."""
        is_over = self._process is not None and self._process.poll() == -signal.SIGABRT
        return is_over and "lock_exception" in (self._folder / "server.log").read_text()

    def is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "server.log").read_text()[-3000:]
        with suppress(URLError, OSError), urlopen(f"http://127.0.0.1:{self.port}/v2/health/ready", timeout=1) as answer:
            return bool(answer.status == 200)
        return False

    def regions(self) -> str:
        """The shared memory that the server knows, JSON."""
        with urlopen(f"http://127.0.0.1:{self.port}/v2/systemsharedmemory/status", timeout=10) as answer:
            return str(answer.read().decode())

    def kill(self) -> None:
        """End the server and its models' processes at once."""
        if self._process:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for path in Path("/dev/shm").glob(f"{self._prefix}*"):  # noqa: S108 - of its models
            path.unlink(missing_ok=True)

    close = kill


def _root() -> Path:
    return TRITON / "pytriton" / "tritonserver"


def _stub() -> Path:
    """The model's process for Debian's Python, whose library it needs."""
    for stub in sorted((_root() / "python_backend_stubs").glob("*/triton_python_backend_stub")):
        if find_library(f"python{stub.parent.name}"):
            return stub
    raise AssertionError("no libpython for Triton's models: apt install libpython3-dev")
