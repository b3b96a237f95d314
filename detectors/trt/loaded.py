"""A loaded engine, as its lanes see it."""

from __future__ import annotations

from typing import Any, Protocol

from detectors.cuda import Device, Module
from detectors.heads import Head
from detectors.port import Options
from detectors.trt.host_copies import HostCopyPool
from detectors.trt.memory_plan import Needs


class Loaded(Protocol):
    """The parts of a loaded engine that lanes share; `detectors.trt.detector.TrtDetector` is one.

    Attributes:
        labels: number of labels of the model.
        input, output: names of the engine's tensors.
        output_shape: without the batch.
        dynamic: the engine takes all batch sizes up to `max_batch`; otherwise only that one.
        preprocess, postprocess: kernels.
    """

    device: Device
    options: Options
    head: Head
    labels: int
    needs: Needs
    copy_pool: HostCopyPool
    preprocess: Module
    postprocess: Module
    input: str
    output: str
    output_shape: tuple[int, ...]
    max_batch: int
    dynamic: bool

    def make_context(self) -> Any: ...
