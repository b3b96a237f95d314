"""What it costs to send pictures to a real Triton server on this host, by transport and type of the input.

    python -m tests.speed.transports [--batch 8] [--seconds 3]

The model takes 640x640 and has the outputs of YOLOv8, (84, 8400), of zeros: it answers at once, so that only the way is
measured. Round trip: p50 of `detect`, preprocessing of 1080p pictures and NMS included. CPU: of this process. The
last line is the time from a restarted server's readiness to the first results, after a kill.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, sleep

import numpy as np

from detectors.factory import open_detector
from detectors.port import DetectorUnavailableError, HostImage, Options, Transport
from tests.support.tritonserver import TritonServer

_MODEL = """
import numpy as np
import triton_python_backend_utils as backend

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(len(backend.get_input_tensor_by_name(row, "images").as_numpy())) for row in requests]

    def answer(self, count):
        return backend.InferenceResponse([backend.Tensor("output0", np.zeros((count, 84, 8400), np.float32))])
"""
_CONFIG = """
backend: "python"
max_batch_size: 32
input [{{ name: "images" data_type: TYPE_{kind} dims: [3, 640, 640] }}]
output [{{ name: "output0" data_type: TYPE_FP32 dims: [84, 8400] }}]
instance_group [{{ count: 1 kind: KIND_CPU }}]
"""
_KINDS = ("FP32", "FP16", "UINT8")
_TRANSPORTS: tuple[Transport, ...] = ("http", "shm")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3.0)
    args = parser.parse_args()
    configs = {kind.lower(): _CONFIG.format(kind=kind) for kind in _KINDS}
    with tempfile.TemporaryDirectory() as folder, closing(TritonServer(Path(folder), configs, _MODEL)) as server:
        for transport in _TRANSPORTS:
            for kind in _KINDS:
                options = Options(Path(server.address(kind.lower())), max_batch=args.batch, transport=transport)
                sys.stdout.write(f"{transport:5} {kind:6} {_measured(options, args.seconds)}\n")
                sys.stdout.flush()
        sys.stdout.write(f"back {_recovery(server):.2f} s after a restarted server is ready\n")
    return 0


def _recovery(server: TritonServer) -> float:
    """Seconds from readiness to results; a lane tries it as often as frames come."""
    with closing(open_detector("triton", Options(Path(server.address("uint8"))))) as detector:
        image = detector.sample(640, 360)
        with closing(detector.lane()) as lane:
            lane.detect([image])
            server.kill()
            with suppress(DetectorUnavailableError):
                lane.detect([image])
            server.start()
            ready = perf_counter()
            while True:
                with suppress(DetectorUnavailableError):
                    lane.detect([image])
                    return perf_counter() - ready
                sleep(0.01)


def _measured(options: Options, seconds: float) -> str:
    random = np.random.default_rng(0)
    images = [HostImage(random.integers(0, 256, (1080, 1920, 3), np.uint8)) for _ in range(options.max_batch)]
    with closing(open_detector("triton", options)) as detector, closing(detector.lane()) as lane:
        lane.detect(images)
        took, prepared, began, used = list[float](), list[float](), perf_counter(), process_time()
        while perf_counter() - began < seconds:
            started = perf_counter()
            _, times = lane.detect(images)
            took.append(perf_counter() - started)
            prepared.append(times.preprocess / 1e9)
        used = (process_time() - used) / len(took)
        way = detector.info.transport
    return (
        f"{len(images)} pictures: round trip {median(took) * 1e3:.1f} ms, of which preprocessing "
        f"{median(prepared) * 1e3:.1f} ms; CPU {used * 1e3:.1f} ms ({way})"
    )


if __name__ == "__main__":
    sys.exit(main())
