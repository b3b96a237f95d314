"""Intermediate tensors of an engine, to find where its values go wrong.

They are outputs of a separate engine, because layers are not fused across an output.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from detectors.cuda import Device, DeviceBuffer, Stream
from detectors.heads.layout import Floats
from detectors.model import read
from detectors.port import DetectorError, Options, cache_folder
from detectors.trt import compat
from detectors.trt.builder import builder
from detectors.trt.engine import EngineStore
from detectors.trt.hooks import make_logger
from detectors.trt.library import Library
from detectors.trt.model_file import ModelFile


def tensors(library: Library, options: Options, names: Sequence[str], pixels: Floats) -> dict[str, Floats]:
    """The named tensors of an engine run on one picture.

    Args:
        library: that builds and runs it.
        names: tensors of the graph, in addition to the outputs.
        pixels: (1, 3, height, width) float32, preprocessed.

    Raises:
        DetectorError: no GPU, or the engine cannot be built or run.
    """
    with TemporaryDirectory() as folder, ExitStack() as undo:
        path = Path(folder) / f"{options.path.stem}.compared.onnx"
        path.write_bytes(_with_outputs(options, names))
        options = replace(options, path=path, max_batch=1)
        device = undo.enter_context(closing(Device(options.device)))
        owned = undo.enter_context(closing(_Engine(library)))
        owned.load(device, options)
        return owned.run(pixels)


def _with_outputs(options: Options, names: Sequence[str]) -> bytes:
    read(options.path)  # with its errors
    model = onnx.load(options.path)  # with external weights, because the copy lies in another folder
    known = {entry.name for entry in model.graph.output}
    inferred = {entry.name: entry for entry in onnx.shape_inference.infer_shapes(model).graph.value_info}
    model.graph.output.extend(inferred[name] for name in names if name in inferred and name not in known)
    content: bytes = model.SerializeToString()
    return content


class _Engine:
    """The only owner of engine and context: an error's traceback must not keep them alive after the device."""

    def __init__(self, library: Library) -> None:
        self._library, self._trt = library, library.trt
        self._context: Any = None
        self._engine: Any = None
        self._runtime: Any = None

    def load(self, device: Device, options: Options) -> None:
        self._runtime = self._trt.Runtime(make_logger(self._trt))
        store = EngineStore(cache_folder(options.cache) / "engines")
        recipe = ModelFile(options).recipe(options, self._library.target(device))
        build = builder(store.folder, options.device)
        self._engine, _ = store.get_or_build(options.path, recipe, build, self._runtime.deserialize_cuda_engine)

    def run(self, pixels: Floats) -> dict[str, Floats]:
        self._context = compat.make_own_context(self._trt, self._engine, None)
        if self._context is None:
            raise DetectorError("no memory for an execution context: see the log above")
        names = [self._engine.get_tensor_name(number) for number in range(self._engine.num_io_tensors)]
        inputs = [name for name in names if self._engine.get_tensor_mode(name) == self._trt.TensorIOMode.INPUT]
        for name in inputs:
            self._context.set_input_shape(name, pixels.shape)
        arrays = {name: self._array(name) for name in names}
        with ExitStack() as undo:
            stream = undo.enter_context(closing(Stream()))
            buffers = {name: undo.enter_context(closing(DeviceBuffer(array.nbytes))) for name, array in arrays.items()}
            for name, buffer in buffers.items():
                self._context.set_tensor_address(name, buffer.pointer)
            for name in inputs:
                arrays[name][...] = pixels
                buffers[name].upload(arrays[name], stream)
            if not self._context.execute_async_v3(stream.handle):
                raise DetectorError("TensorRT failed: see the log above")
            for name in set(names).difference(inputs):
                buffers[name].download(arrays[name], stream)
            stream.synchronize()
        return {name: array.astype(np.float32) for name, array in arrays.items() if name not in inputs}

    def _array(self, name: str) -> npt.NDArray[Any]:
        shape, kind = self._context.get_tensor_shape(name), self._engine.get_tensor_dtype(name)
        return np.empty(tuple(shape), self._trt.nptype(kind))

    def close(self) -> None:
        self._context = self._engine = self._runtime = None
