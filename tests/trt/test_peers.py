"""Lookout's own row of `python -m tests.bench engine --peer`, over the stub of TensorRT."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np

from daemon.bench.engine import EngineOptions, detector_options
from detectors.port import HostImage
from tests.bench.peers.compare import differences, subject_of
from tests.bench.peers.own import OwnEngine
from tests.bench.peers.program import measured
from tests.support import fake_tensorrt as tensorrt
from tests.trt.parts import open_trt


def test_the_engine_alone_is_timed_and_its_outputs_are_those_of_the_cpu(toy: Path, engines: Path) -> None:
    options = detector_options(EngineOptions(toy, max_batch=4, cache=engines))
    subject = subject_of(options)
    pictures = [HostImage(np.ascontiguousarray(picture)) for picture in subject.pictures]
    with closing(OwnEngine(open_trt(options), pictures)) as engine:
        found = measured(engine, 0.05)
        assert (found["version"], found["precision"], engine.batch) == (tensorrt.__version__, "fp16", 4)
        assert 0 < found["lowest"] <= found["images_per_s"] <= found["highest"]
        _, share, fault = differences(subject.expected, engine.outputs(subject.rows))
    assert fault == ""
    assert share is not None
    assert share < 1e-3
