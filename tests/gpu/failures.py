"""Failures on a real GPU: each gives one clear line, and the exit code that supervisors rely on.

python -m tests.gpu.failures --cache DIR
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import monotonic

import numpy as np
import onnx
import pytest
import structlog

from daemon.build import build
from daemon.config.model import ModelConfig
from daemon.config.publisher import PublisherConfig
from daemon.config.root import Config, LogConfig
from daemon.config.sources import SyntheticConfig
from daemon.log import logging
from daemon.monitoring.health import PART_FAILED
from daemon.seams import Seams
from detectors.cuda import Device, DeviceBuffer, Module, Stream
from detectors.nvrtc import compile_cubin
from detectors.port import DetectorError, Options, PostprocessParams
from detectors.trt.detector import TrtDetector
from detectors.trt.engine import EngineStore
from lookout.client import Subscriber
from lookout.messages import Status
from tests.support.daemon import DEMO_MODEL
from tests.support.ports import free_port

_POISON = 'extern "C" __global__ void poison(int* where) { *where = 1; }'


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--poison", help="run with a kernel that writes where it must not, publishing here")
    args = parser.parse_args()
    options = Options(DEMO_MODEL, wanted=PostprocessParams(0.4), max_batch=4, builder_level=0, cache=args.cache)
    options = replace(options, precision="fp32")
    if args.poison:
        return _poisoned(options, args.poison)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(20))
    with closing(TrtDetector(options)) as detector:
        minimum = detector.needs.total(1, 1) >> 20
    lines = [
        _line("memory limit below the least", lambda: TrtDetector(replace(options, memory_limit=minimum - 1 << 20))),
        _line("no such GPU", lambda: TrtDetector(replace(options, device=99))),
        _line("unsupported layer", lambda: TrtDetector(replace(options, path=_strange(args.cache)))),
        _line("not a model", lambda: TrtDetector(replace(options, path=Path(__file__)))),
        _lanes_lowered(options, minimum),
        _full(options),
        _bad_plan(options),
        _sticky(args.cache),
    ]
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
    return 0


def _line(name: str, work: Callable[[], object]) -> str:
    with pytest.raises(DetectorError) as caught:
        work()
    assert "\n" not in str(caught.value)
    return f"{name}: {caught.value}"


def _strange(folder: Path) -> Path:
    """A model with a layer unknown to TensorRT."""
    model = onnx.load(DEMO_MODEL)
    model.graph.node[3].op_type = "Unheard"
    path = folder / "strange.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def _lanes_lowered(options: Options, minimum: int) -> str:
    """Memory for fewer lanes than configured: reported and respected."""
    with closing(TrtDetector(replace(options, lanes=8, memory_limit=minimum + 120 << 20))) as detector:
        assert detector.info.lanes < 8
        assert sum(size for _, size in detector.info.memory) <= minimum + 120 << 20
        with closing(detector.lane()):
            return f"memory for fewer lanes: {'; '.join(detector.info.notes)}"


def _full(options: Options) -> str:
    """Another process occupies nearly all GPU memory."""
    device = Device()
    hog = DeviceBuffer(device.free_memory() - (256 << 20))
    try:
        return _line("GPU is full", lambda: TrtDetector(options))
    finally:
        hog.close()
        device.close()


def _bad_plan(options: Options) -> str:
    """An invalid plan with a matching manifest."""
    assert options.cache is not None
    store = EngineStore(options.cache / "engines")
    entry = store.entries()[0]
    assert entry.manifest is not None
    broken = entry.plan.read_bytes()[: entry.manifest.plan_bytes // 2]
    entry.plan.write_bytes(broken)
    entry.plan.with_suffix(".json").write_bytes(entry.manifest.sealed(broken).file)
    with closing(TrtDetector(options)) as detector:
        assert detector.manifest.plan_bytes > len(broken)
    assert entry.plan.with_suffix(".bad").exists()
    return "a plan TensorRT cannot load: quarantined and built again"


def _sticky(cache: Path) -> str:
    """A kernel of the daemon writes out of bounds: the process reports it and ends."""
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "tests.gpu.failures", "--cache", str(cache), "--poison", endpoint]
    began = monotonic()
    with Subscriber(endpoint, kinds=["status", "detections"]) as subscriber:
        child = subprocess.Popen(command, stderr=subprocess.PIPE)  # less than a pipe holds
        heard = []
        while child.poll() is None or subscriber.received == 0:
            assert monotonic() - began < 120
            message = subscriber.receive(0.2)
            heard += [message] if message is not None else []
        while (message := subscriber.receive(0.5)) is not None:
            heard.append(message)
    assert child.stderr is not None
    output = child.stderr.read().decode()
    assert child.returncode == PART_FAILED, (child.returncode, output[-3000:])
    last = [message for message in heard if isinstance(message, Status)][-1]
    assert last.state == "ended", last
    reason = next(line for line in output.splitlines() if "ended by a failure" in line)
    return f"sticky CUDA error: exit code {child.returncode}, last status {last.state!r} ({last.reason}); log: {reason}"


def _poisoned(options: Options, endpoint: str) -> int:
    config = Config(
        model=ModelConfig(path=options.path, backend="trt"),
        sources=[SyntheticConfig(id="street")],
        publisher=PublisherConfig(endpoint=endpoint, wait_for_subscriber_s=60),
    )
    app = build(config, Seams(open_detector=lambda _backend, _options: TrtDetector(options)))
    threading.Timer(2.0, _write_astray, (options,)).start()
    with logging(LogConfig(format="json")):
        return app.run()


def _write_astray(options: Options) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "poison.cu"
        source.write_text(_POISON)
        device = Device()
        module, stream = Module(compile_cubin(source, device.architecture, options.cache)), Stream()
        module.launch("poison", (1, 1, 1), (1, 1, 1), stream, [np.uint64(64)])


if __name__ == "__main__":
    sys.exit(main())
