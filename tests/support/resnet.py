"""ResNet-50 with random weights, for measuring its speed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper, save

_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
_WIDER = 4  # output channels over those of the middle layer


def resnet50(path: Path, size: int = 224) -> Path:
    """Write the model as ONNX; any batch size."""
    save(_Made(size).model, str(path))
    return path


class _Made:
    def __init__(self, size: int) -> None:
        self._random = np.random.default_rng(0)
        self._nodes: list[NodeProto] = []
        self._values: list[TensorProto] = []
        top = self._conv("images", "stem", (3, 64), 7, 2)
        top = self._node("Relu", "stem_relu", [top])
        top = self._node("MaxPool", "stem_pool", [top], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        wide = 64
        for name, width, stride in _blocks():
            top, wide = self._block(top, name, wide, width, stride), width * _WIDER
        top = self._node("GlobalAveragePool", "mean", [top])
        top = self._node("Flatten", "flat", [top])
        weights = self._value("scores_weight", (wide, 1000), wide)
        top = self._node("Gemm", "scores", [top, weights])
        graph = helper.make_graph(
            self._nodes,
            "resnet50",
            [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, size, size])],
            [helper.make_tensor_value_info(top, TensorProto.FLOAT, ["batch", 1000])],
            self._values,
        )
        self.model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        self.model.ir_version = 8

    def _block(self, before: str, name: str, wide: int, width: int, stride: int) -> str:
        top = self._node("Relu", f"{name}_relu1", [self._conv(before, f"{name}_conv1", (wide, width), 1)])
        top = self._node("Relu", f"{name}_relu2", [self._conv(top, f"{name}_conv2", (width, width), 3, stride)])
        top = self._conv(top, f"{name}_conv3", (width, width * _WIDER), 1, gain=0.3)
        if wide != width * _WIDER:
            before = self._conv(before, f"{name}_beside", (wide, width * _WIDER), 1, stride)
        return self._node("Relu", f"{name}_relu3", [self._node("Add", f"{name}_add", [top, before])])

    def _conv(
        self, before: str, name: str, channels: tuple[int, int], side: int, stride: int = 1, gain: float = 1
    ) -> str:
        inside, outside = channels
        weights = self._value(f"{name}_weight", (outside, inside, side, side), inside * side * side / gain**2)
        shape = {"kernel_shape": [side, side], "strides": [stride, stride], "pads": [side // 2] * 4}
        return self._node("Conv", name, [before, weights, self._value(f"{name}_bias", (outside,), 1e4)], **shape)

    def _value(self, name: str, shape: tuple[int, ...], reads: float) -> str:
        """Random weights, scaled so that activations keep their size."""
        array = self._random.standard_normal(shape, np.float32) * np.float32((2 / reads) ** 0.5)
        self._values.append(numpy_helper.from_array(array, name))
        return name

    def _node(self, kind: str, name: str, inputs: list[str], **attributes: object) -> str:
        self._nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name


def _blocks() -> Iterator[tuple[str, int, int]]:
    """Name, width and stride of each block."""
    for stage, (width, count) in enumerate(_STAGES):
        for place in range(count):
            yield f"stage{stage}_{place}", width, 2 if stage and not place else 1
