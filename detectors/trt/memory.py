"""What of the GPU's memory a model, its lanes and their batches will take: added up before it is taken.

Sizes of what Lookout allocates are exact, and the lanes take theirs from here. What CUDA and TensorRT take for
themselves was measured, on one H200 with driver 580 and TensorRT 8.6 (`python -m tests.gpu.speed`, "memory").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from detectors.letterbox import InputSpec
from detectors.port import ENGINE
from detectors.trt import kernels

CAPACITY = 1 << 14  # candidates a picture has room for; only a threshold near zero meets it
_CONTEXT = 535 << 20  # a CUDA context, its kernels, and what TensorRT keeps for itself
_GRAPHS = 4 << 20  # a lane's three CUDA graphs and execution context of one batch size

Rows = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Needs:
    """What decides how much memory is taken.

    Attributes:
        weights: bytes of the engine.
        activations: bytes of one execution context, at `largest` pictures a batch.
        largest: the batch the engine was built for.
        spec: of the model's input.
        half: whether the input is FP16.
        outputs: values the model gives for each picture.
        frame: bytes of the largest picture staged for a copy from host memory.
    """

    weights: int
    activations: int
    largest: int
    spec: InputSpec
    half: bool
    outputs: int
    frame: int

    def input(self, batch: int) -> int:
        """Bytes of a lane's input."""
        return batch * 3 * self.spec.width * self.spec.height * (2 if self.half else 4)

    def output(self, batch: int) -> int:
        """Bytes of a lane's raw output."""
        return batch * self.outputs * 4

    def rows(self, lanes: int, batch: int) -> Rows:
        """Bytes by what they are for. An engine for a smaller batch is taken to need as much less."""
        scratch = batch * CAPACITY * kernels.SCRATCH_BYTES
        return (
            ("CUDA and TensorRT themselves", _CONTEXT),
            (ENGINE, self.weights),
            ("execution contexts", lanes * self.activations * batch // self.largest),
            ("CUDA graphs", lanes * len(batch_sizes(batch)) * _GRAPHS),
            ("inputs and outputs", lanes * (self.input(batch) + self.output(batch))),
            ("decoding and NMS", lanes * scratch),
            ("frames copied from the host", lanes * batch * self.frame),
        )

    def total(self, lanes: int, batch: int) -> int:
        return sum(size for _, size in self.rows(lanes, batch))


def shrink(lanes: int, batch: int, limit: int, total: Callable[[int, int], int]) -> tuple[int, int] | None:
    """The most lanes and pictures a batch that stay within a limit, or None if one of each does not.

    Lanes go first: a second one hides copies behind inference, a larger batch is what the GPU is fast with.
    """
    while total(lanes, batch) > limit:
        if lanes > 1:
            lanes -= 1
        elif batch > 1:
            batch = 1 << (batch - 1).bit_length() - 1
        else:
            return None
    return lanes, batch


def batch_sizes(most: int) -> list[int]:
    """Batch sizes that get a graph of their own: 1, 2, 3, 4, 6, 8, 12, ... and the largest.

    The steps between powers of two save 6 to 20 % of the time of a batch that would be padded (yolov8n FP16 on an H200,
    `python -m tests.gpu.precisions`), and cost a lane a few hundredths of a second at its start.
    """
    powers = [1 << power for power in range(most.bit_length())]
    return sorted({size for power in powers for size in (power, power * 3 // 2) if size <= most} | {most})
