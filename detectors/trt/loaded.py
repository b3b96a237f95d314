"""A loaded engine, as its lanes see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from detectors.cuda import Device, Module
from detectors.heads.layout import Head
from detectors.port import Options, Size
from detectors.ranges import Ranges
from detectors.trt.host_copies import HostCopyPool
from detectors.trt.memory_plan import Needs


@dataclass(frozen=True)
class Tensor:
    """An output of an engine.

    Attributes:
        shape: without the batch.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Of one picture."""
        return int(np.prod(self.shape)) * self.dtype.itemsize


@dataclass(frozen=True)
class AtSize:
    """A loaded engine at one input size.

    Attributes:
        profile: number of its optimisation profile.
        constants: the engine's further inputs, a row each, which is the same for all pictures.
        outputs: of the engine.
    """

    profile: int
    head: Head
    constants: Mapping[str, npt.NDArray[Any]]
    outputs: Sequence[Tensor]

    @property
    def size(self) -> Size:
        return self.head.spec.width, self.head.spec.height


class Decoding(NamedTuple):
    """The kernels of a head.

    Attributes:
        name: see `detectors.trt.kernels.decoding.Kernels`.
    """

    module: Module
    name: str


class Loaded(Protocol):
    """The parts of a loaded engine that lanes share; `detectors.trt.detector.TrtDetector` is one.

    Attributes:
        labels: number of labels of the model.
        input: name of the engine's input for pictures.
        head: at the model's own size.
        sizes: the engine at each input size; the model's own first.
        dynamic: the engine takes all batch sizes up to `max_batch`; otherwise only that one.
        preprocess: the kernels of preprocess.cu.
        decoding: the kernels of the head; None if the host decodes it.
        ranges: of a profiler.
    """

    device: Device
    options: Options
    head: Head
    labels: int
    needs: Needs
    copy_pool: HostCopyPool
    preprocess: Module
    decoding: Decoding | None

    @property
    def input(self) -> str: ...

    sizes: Sequence[AtSize]
    max_batch: int
    dynamic: bool
    ranges: Ranges

    def make_context(self) -> Any: ...
