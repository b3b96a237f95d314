"""ResNet-18 and ResNet-50 with random weights, for measuring their speed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper, save

_WIDTHS = (64, 128, 256, 512)
_BLOCKS_18, _BLOCKS_50 = (2, 2, 2, 2), (3, 4, 6, 3)  # of each width
_WIDER = 4  # output channels of ResNet-50's blocks over those of their middle layer


def resnet18(path: Path, size: int = 224) -> Path:
    """Write the model as ONNX; any batch size."""
    save(_Made("resnet18", size, _BLOCKS_18, wider=1).model, str(path))
    return path


def resnet50(path: Path, size: int = 224, narrow: int = 1) -> Path:
    """Write the model as ONNX; any batch size.

    Args:
        narrow: how many times fewer channels its blocks have.
    """
    save(_Made("resnet50", size, _BLOCKS_50, _WIDER, narrow).model, str(path))
    return path


class _Made:
    """Args:
    blocks: number of them for each width.
    wider: output channels over those of the other layers; 1 for blocks of two layers.
    narrow: how many times fewer channels the blocks have.
    """

    def __init__(self, title: str, size: int, blocks: Sequence[int], wider: int, narrow: int = 1) -> None:
        self._wider = wider
        self._random = np.random.default_rng(0)
        self._nodes: list[NodeProto] = []
        self._values: list[TensorProto] = []
        top = self._conv("images", "stem", (3, 64), 7, 2)
        top = self._node("Relu", "stem_relu", [top])
        top = self._node("MaxPool", "stem_pool", [top], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        wide = 64
        for name, width, stride in _blocks(blocks, narrow):
            top, wide = self._block(top, name, wide, width, stride), width * wider
        top = self._node("GlobalAveragePool", "mean", [top])
        top = self._node("Flatten", "flat", [top])
        weights = self._value("scores_weight", (wide, 1000), wide)
        top = self._node("Gemm", "scores", [top, weights])
        graph = helper.make_graph(
            self._nodes,
            title,
            [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, size, size])],
            [helper.make_tensor_value_info(top, TensorProto.FLOAT, ["batch", 1000])],
            self._values,
        )
        self.model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        self.model.ir_version = 8
        helper.set_model_props(self.model, {"mean": "[0.485, 0.456, 0.406]", "std": "[0.229, 0.224, 0.225]"})

    def _block(self, before: str, name: str, wide: int, width: int, stride: int) -> str:
        outside = width * self._wider
        if self._wider > 1:
            top = self._node("Relu", f"{name}_relu1", [self._conv(before, f"{name}_conv1", (wide, width), 1)])
            top = self._node("Relu", f"{name}_relu2", [self._conv(top, f"{name}_conv2", (width, width), 3, stride)])
            top = self._conv(top, f"{name}_conv3", (width, outside), 1, gain=0.3)
        else:
            top = self._node("Relu", f"{name}_relu1", [self._conv(before, f"{name}_conv1", (wide, width), 3, stride)])
            top = self._conv(top, f"{name}_conv2", (width, width), 3, gain=0.3)
        if wide != outside or stride > 1:
            before = self._conv(before, f"{name}_beside", (wide, outside), 1, stride)
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


def _blocks(counts: Sequence[int], narrow: int) -> Iterator[tuple[str, int, int]]:
    """Name, width and stride of each block."""
    for stage, (width, count) in enumerate(zip(_WIDTHS, counts)):
        for place in range(count):
            yield f"stage{stage}_{place}", width // narrow, 2 if stage and not place else 1
