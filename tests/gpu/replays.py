"""An engine alone: replays of its CUDA graph over zeros."""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import tensorrt as trt

from detectors.cuda import DeviceBuffer, Stream

_WARM_UP = 20


class Replay:
    """The graph of one batch size. `undo` closes it.

    Args:
        size: pictures of the batch.
    """

    def __init__(self, engine: Any, size: int, undo: ExitStack) -> None:
        self._stream = _kept(Stream(), undo)
        context = context_of(engine, size, self._stream, undo)
        context.execute_async_v3(self._stream.handle)
        self._stream.synchronize()
        with self._stream.capture() as graphs:
            context.execute_async_v3(self._stream.handle)
        self._graph = _kept(graphs[0], undo)
        self._context = context

    def seconds(self, rounds: int, round_s: float) -> float:
        """Seconds per batch when batches follow each other: the median of rounds."""
        self._run(_WARM_UP)
        times = max(5, round(round_s / self._run(_WARM_UP)))
        return median(self._run(times) for _ in range(rounds))

    def latency(self, count: int) -> float:
        """Seconds from the launch of one batch to its end, the median."""
        return median(self._run(1) for _ in range(count))

    def _run(self, times: int) -> float:
        begun = perf_counter()
        for _ in range(times):
            self._graph.launch(self._stream)
        self._stream.synchronize()
        return (perf_counter() - begun) / times


def context_of(engine: Any, size: int, stream: Stream, undo: ExitStack) -> Any:
    """An execution context with zero inputs."""
    context = engine.create_execution_context()
    for number in range(engine.num_io_tensors):
        name = engine.get_tensor_name(number)
        shape = (size, *tuple(engine.get_tensor_shape(name))[1:])
        if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT:
            shape = (*shape[:2], *(side if side > 0 else 640 for side in shape[2:]))
            context.set_input_shape(name, shape)
        shape = tuple(context.get_tensor_shape(name))
        buffer = _kept(DeviceBuffer(4 * int(np.prod(shape))), undo)
        buffer.clear(stream)
        context.set_tensor_address(name, buffer.pointer)
    stream.synchronize()
    return context


def _kept(handle: Any, undo: ExitStack) -> Any:
    undo.callback(handle.close)
    return handle
