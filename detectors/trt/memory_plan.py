"""Plan of the GPU memory of a model, its lanes and batches, made before allocation.

Lookout's own allocations are exact, and lanes use these sizes. CUDA's and TensorRT's own use was measured on one H200
with driver 580 and TensorRT 8.6 (`python -m tests.gpu.speed`, "memory").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from detectors.letterbox import InputSpec
from detectors.port import ENGINE
from detectors.trt import kernels

CAPACITY = 1 << 14  # candidates per picture; reached only with a threshold near zero
_CONTEXT = 535 << 20  # a CUDA context, its kernels, and TensorRT's own memory
_GRAPHS = 4 << 20  # three CUDA graphs and the execution context of one batch size in a lane

Rows = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Needs:
    """Inputs of the memory plan.

    Attributes:
        weights: bytes of the engine.
        activations: bytes of one execution context for a batch of `largest`, at any input size.
        largest: batch size the engine was built for.
        spec: of the model's largest input.
        half: whether the input is FP16.
        outputs: bytes of all outputs per picture, at any input size.
        scratch: bytes of a picture for the kernels of the head.
        frame: bytes of the largest picture copied from host memory.
        parts: see `detectors.port.Options`.
        sizes: number of input sizes. They share a lane's buffers, because one batch is in flight; graphs are their own.
    """

    weights: int
    activations: int
    largest: int
    spec: InputSpec
    half: bool
    outputs: int
    scratch: int
    frame: int
    parts: int = 0
    sizes: int = 1

    def input(self, batch: int) -> int:
        """Bytes of a lane's input."""
        return batch * 3 * self.spec.width * self.spec.height * (2 if self.half else 4)

    def output(self, batch: int) -> int:
        """Bytes of a lane's raw outputs."""
        return batch * self.outputs

    def rows(self, lanes: int, batch: int) -> Rows:
        """Bytes by purpose. Activations are taken as proportional to the batch size. A second model shares the CUDA
        context and TensorRT with the first one."""
        own: Rows = (("CUDA and TensorRT themselves", _CONTEXT),)
        if self.parts:
            own = (("parts that wait", slots(self.parts) * (self.input(1) + kernels.PICTURE.itemsize)),)
        return (
            *own,
            (ENGINE, self.weights),
            ("execution contexts", lanes * self.activations * batch // self.largest),
            ("CUDA graphs", lanes * self.sizes * len(batch_sizes(batch)) * _GRAPHS),
            ("inputs and outputs", lanes * (self.input(batch) + self.output(batch))),
            ("decoding and NMS", lanes * batch * self.scratch),
            ("frames copied from the host", lanes * batch * self.frame),
        )

    def total(self, lanes: int, batch: int) -> int:
        return sum(size for _, size in self.rows(lanes, batch))


def slots(parts: int) -> int:
    """Inputs in a cutter's ring: twice the parts that may wait, so that a part that is held for long does not stop the
    others."""
    return 2 * parts


def shrink(lanes: int, batch: int, limit: int, total: Callable[[int, int], int]) -> tuple[int, int] | None:
    """The largest numbers of lanes and pictures per batch within a limit; None if even one of each does not fit.

    Lanes are reduced first: a second lane only hides copies behind inference, a large batch makes the GPU fast.
    """
    while total(lanes, batch) > limit:
        if lanes > 1:
            lanes -= 1
        elif batch > 1:
            batch = 1 << (batch - 1).bit_length() - 1
        else:
            return None
    return lanes, batch


def batch_sizes(largest: int) -> list[int]:
    """Batch sizes with graphs of their own: 1, 2, 3, 4, 6, 8, 12, ... and the largest.

    The sizes between powers of two save 6 to 20 % of the time of a batch that would be padded otherwise (yolov8n FP16
    on an H200, `python -m tests.gpu.precisions`), and cost a lane a few hundredths of a second at its start.
    """
    powers = [1 << power for power in range(largest.bit_length())]
    return sorted({size for power in powers for size in (power, power * 3 // 2) if size <= largest} | {largest})
