"""Small detectors of coloured blocks, with the outputs of many exporters.

Each finds red and blue blocks of 32x32 pixels in a picture of 64x64, and nothing in grey. Its outputs depend on the
picture: rows are chosen by TopK, NonMaxSuppression or NonZero, as in the files of the exporters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper, save

SIDE, STRIDES = 64, (8, 16, 32)
RED, BLUE = 0, 1  # class ids
_FLOAT, _INT = TensorProto.FLOAT, TensorProto.INT64
_GAIN = {8: 0.01, 16: 0.02, 32: 1.0}  # of scores: the largest cells alone find a block
_WEAK = 1e-4  # score of every cell, as of a trained model
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Dims = Sequence[int | str]


def blocks() -> npt.NDArray[np.uint8]:
    """A picture with a red block top-left and a blue one bottom-right, BGR."""
    picture = np.zeros((SIDE, SIDE, 3), np.uint8)
    picture[:32, :32, 2] = picture[32:, 32:, 0] = 255
    return picture


FOUND = [(RED, (0.0, 0.0, 32.0, 32.0)), (BLUE, (32.0, 32.0, 64.0, 64.0))]
"""Class and corners of what is in `blocks`."""


class Export:
    """A graph under construction; names of tensors are numbers.

    Args:
        colours: mean and deviation of the input's colours.
        scale: of colours; 255 for an input of 0 to 255.
        bgr: the order of channels.
        stem: kernel and stride of a convolution that reads the picture, without any effect.
        batch: of the input.
        strides: of the grid.
    """

    def __init__(
        self,
        *,
        colours: tuple[Sequence[float], Sequence[float]] = ((0, 0, 0), (1, 1, 1)),
        scale: float = 1,
        bgr: bool = False,
        stem: Sequence[tuple[int, int]] = ((3, 2),),
        batch: int | str = "batch",
        strides: Sequence[int] = STRIDES,
    ) -> None:
        self.batch, self._strides = batch, strides
        self._nodes: list[Any] = []
        self._given: list[Any] = []
        self._inputs = [helper.make_tensor_value_info("images", _FLOAT, [batch, 3, SIDE, SIDE])]
        self._outputs: list[Any] = []
        mean, std = (np.array(row, np.float32).reshape(1, 3, 1, 1) for row in colours)
        shown = self.op("Mul", self.op("Add", self.op("Mul", "images", self.value(std)), self.value(mean)),
                        self.value(np.float32(1 / scale)))  # fmt: skip
        for kernel, stride in stem:
            weights = self.value(np.zeros((1, 3, kernel, kernel), np.float32))
            seen = self.op("Conv", "images", weights, kernel_shape=[kernel] * 2, strides=[stride] * 2)
            nothing = self.op("ReduceMean", seen, axes=[1, 2, 3], keepdims=1)
            shown = self.op("Add", shown, nothing)
        marks = np.array([[1, -0.5, -0.5], [-0.5, -0.5, 1]], np.float32)
        self._marked = self.op("Conv", shown, self.value((marks[:, ::-1] if bgr else marks)[..., None, None]))
        self.scores = self._scores()
        self.cells = int(sum((SIDE // stride) ** 2 for stride in strides))

    def op(self, kind: str, *inputs: str, outputs: int = 1, name: str = "", **attributes: Any) -> Any:
        """Add a node; returns the name of its output, or a list of them."""
        names = [name or f"t{len(self._nodes)}_{number}" for number in range(outputs)]
        self._nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def value(self, array: npt.ArrayLike, kind: Any = None) -> str:
        """Add a constant; integers are INT64."""
        made = np.asarray(array)
        made = made.astype(kind or (np.int64 if made.dtype.kind == "i" else np.float32))
        name = f"v{len(self._given)}"
        self._given.append(numpy_helper.from_array(made, name))
        return name

    def further_input(self, name: str, kind: int, shape: Dims) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, tensor: str, name: str, shape: Dims, kind: int = _FLOAT) -> None:
        self.op("Identity", tensor, name=name)
        self._outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def save(self, path: Path, metadata: Mapping[str, str] | None = None) -> Path:
        graph = helper.make_graph(self._nodes, "export", self._inputs, self._outputs, self._given)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        helper.set_model_props(model, dict(metadata or {}))
        save(model, str(path))
        return path

    # --- parts of detectors ------------------------------------------------------------------------------------------

    def _scores(self) -> str:
        """(b, n, 2): how red and how blue each cell is."""
        rows = []
        for stride in self._strides:
            pooled = self.op("AveragePool", self._marked, kernel_shape=[stride] * 2, strides=[stride] * 2)
            strong = self.op("Mul", pooled, self.value(np.float32(_GAIN[stride])))
            rows.append(self.op("Reshape", strong, self.value([0, 2, -1])))
        joined = self.op("Concat", *rows, axis=2)
        clipped = self.op("Clip", joined, self.value(np.float32(_WEAK)), self.value(np.float32(1)))
        return str(self.op("Transpose", clipped, perm=[0, 2, 1]))

    def boxes(self, array: npt.NDArray[np.float32]) -> str:
        """(b, n, k): constant rows for each picture."""
        nothing = self.op("Mul", self.slice(self.scores, 2, 0, 1), self.value(np.float32(0)))
        return str(self.op("Add", nothing, self.value(array[None])))

    @property
    def centred(self) -> npt.NDArray[np.float32]:
        """cx, cy, w, h of each cell, (n, 4)."""
        rows = []
        for stride in self._strides:
            y, x = np.mgrid[0:SIDE:stride, 0:SIDE:stride]
            sides = np.full(x.size, stride)
            rows.append(np.stack((x.ravel() + stride / 2, y.ravel() + stride / 2, sides, sides), axis=1))
        return np.concatenate(rows).astype(np.float32)

    @property
    def corners(self) -> npt.NDArray[np.float32]:
        """x1, y1, x2, y2 of each cell, (n, 4)."""
        centre, size = self.centred[:, :2], self.centred[:, 2:]
        return np.concatenate((centre - size / 2, centre + size / 2), axis=1).astype(np.float32)

    def slice(self, tensor: str, axis: int, begin: int, end: int) -> str:
        return str(self.op("Slice", tensor, self.value([begin]), self.value([end]), self.value([axis])))

    def cast(self, tensor: str, kind: int = _FLOAT) -> str:
        return str(self.op("Cast", tensor, to=kind))

    def best(self) -> tuple[str, str]:
        """Score and class of each cell, (b, n, 1), as floats."""
        return (
            self.op("ReduceMax", self.scores, axes=[2], keepdims=1),
            self.cast(self.op("ArgMax", self.scores, axis=2, keepdims=1)),
        )

    def top(self, boxes: str, count: int = 10) -> tuple[str, str, str]:
        """The strongest cells by TopK: boxes (b, k, 4), scores and classes (b, k, 1)."""
        score, label = self.best()
        flat = self.op("Squeeze", score, self.value([2]))
        _, places = self.op("TopK", flat, self.value([count]), outputs=2)
        rows = self.op("Unsqueeze", places, self.value([2]))
        fourfold = self.op("Expand", rows, self.value([1, 1, 4]))
        return (
            self.op("GatherElements", boxes, fourfold, axis=1),
            self.op("GatherElements", score, rows, axis=1),
            self.op("GatherElements", label, rows, axis=1),
        )

    def suppressed(self, boxes: str) -> tuple[str, str, str, str]:
        """Rows after NMS of the first picture: picture (r, 1), box (r, 4), score (r, 1), class (r, 1), as floats."""
        first_boxes, first_scores = self.slice(boxes, 0, 0, 1), self.slice(self.scores, 0, 0, 1)
        chosen = self.op(
            "NonMaxSuppression", first_boxes, self.op("Transpose", first_scores, perm=[0, 2, 1]),
            self.value([100]), self.value([0.45]), self.value([0.25]),
        )  # fmt: skip
        return self._rows(chosen, first_boxes, first_scores)

    def reached(self, boxes: str) -> tuple[str, str, str, str]:
        """The same of all cells above a threshold, by NonZero."""
        first_boxes, first_scores = self.slice(boxes, 0, 0, 1), self.slice(self.scores, 0, 0, 1)
        strong = self.op("Greater", self.op("Transpose", first_scores, perm=[0, 2, 1]), self.value(np.float32(0.25)))
        return self._rows(self.op("Transpose", self.op("NonZero", strong), perm=[1, 0]), first_boxes, first_scores)

    def _rows(self, chosen: str, boxes: str, scores: str) -> tuple[str, str, str, str]:
        """Args:
        chosen: (r, 3) picture, class and cell.
        """
        picture, label, cell = (self.slice(chosen, 1, column, column + 1) for column in range(3))
        flat = self.op("Squeeze", cell, self.value([1]))
        rows = self.op("Gather", self.op("Squeeze", boxes, self.value([0])), flat, axis=0)
        pairs = self.op("Concat", cell, label, axis=1)
        found = self.op("GatherND", self.op("Squeeze", scores, self.value([0])), pairs)
        return self.cast(picture), rows, self.op("Unsqueeze", found, self.value([1])), self.cast(label)

    def padded(self, rows: str, count: int = 10) -> str:
        """(1, count, k) from (r, k), with zeros."""
        length = self.slice(self.op("Shape", rows), 0, 0, 1)
        missing = self.op("Sub", self.value([count]), length)
        pads = self.op("Concat", self.value([0, 0]), missing, self.value([0]), axis=0)
        return str(self.op("Unsqueeze", self.op("Pad", rows, pads, self.value(np.float32(0))), self.value([0])))

    def join(self, *parts: str, axis: int = 2) -> str:
        return str(self.op("Concat", *parts, axis=axis))

    def flat(self, tensor: str, axis: int = 2) -> str:
        """Without an axis of length 1."""
        return str(self.op("Squeeze", tensor, self.value([axis])))

    def tiled(self, tensor: str, times: int = 3) -> str:
        """(b, times * n, k)."""
        return self.join(*[tensor] * times, axis=1)
