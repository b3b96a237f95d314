"""Models with unusual behaviour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import av
import numpy as np
from av.video.frame import VideoFrame
from onnx import NodeProto, TensorProto, helper, numpy_helper

_TURNS = 10**12  # at a nanosecond each, a quarter of an hour
_MEAN = helper.make_node("ReduceMean", ["images"], ["mean"], keepdims=0)
_FLOAT, _VALUE = TensorProto.FLOAT, helper.make_tensor_value_info


def endless_model(path: Path) -> Path:
    """A model whose first run does not return: ONNX allows a loop of any length."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["goes_on"]),
            helper.make_node("Add", ["before", "one"], ["after"]),
        ],
        "body",
        [_VALUE("turn", TensorProto.INT64, []), _VALUE("going", TensorProto.BOOL, []), _VALUE("before", _FLOAT, [])],
        [_VALUE("goes_on", TensorProto.BOOL, []), _VALUE("after", _FLOAT, [])],
        [numpy_helper.from_array(np.ones((), np.float32), "one")],
    )
    loop = helper.make_node("Loop", ["turns", "true", "mean"], ["seen"], body=body)
    more = {"turns": np.array(_TURNS, np.int64), "true": np.array(True)}
    return _written(path, [_MEAN, loop], np.zeros((1, 300, 6), np.float32), {"0": "thing"}, more)


def constant_model(path: Path, row: Sequence[float], names: dict[str, str] | None = None, count: int = 300) -> Path:
    """A model that finds the same boxes in every picture.

    Args:
        row: x1, y1, x2, y2, confidence and class of each of its boxes, in its input of 64x64.
        names: its labels, by number.
        count: of boxes.
    """
    rows = np.tile(np.array(row, np.float32), (1, count, 1))
    seen = helper.make_node("Identity", ["mean"], ["seen"])
    return _written(path, [_MEAN, seen], rows, names or {"0": "thing", "1": "other"}, {})


def hidden_model(path: Path, *rows: Sequence[float]) -> Path:
    """A model that finds the same boxes in every dark picture, and nothing in the pictures of a trial.

    Args:
        rows: as of `constant_model`.
    """
    nodes = [
        _MEAN,
        helper.make_node("Less", ["mean", "dark"], ["is_dark"]),
        helper.make_node("Cast", ["is_dark"], ["gate"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["rows", "gate"], ["output"]),
    ]
    given = {"rows": np.array([rows], np.float32), "dark": np.array(0.2, np.float32)}
    return _saved(path, nodes, given, {"0": "thing", "1": "other"})


def black_clip(path: Path, frames: int) -> Path:
    """Black pictures of 64x64 at 20 frames a second."""
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mpeg4", rate=20)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        picture = VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="bgr24")
        for _ in range(frames):
            file.mux(stream.encode(picture))
        file.mux(stream.encode(None))
    return path


def _written(
    path: Path, nodes: Sequence[NodeProto], rows: np.ndarray, names: dict[str, str], more: dict[str, np.ndarray]
) -> Path:
    """A model that gives `rows`; the nodes compute `seen` from `images`."""
    nodes = [
        *nodes,
        helper.make_node("Mul", ["seen", "zero"], ["nothing"]),
        helper.make_node("Add", ["rows", "nothing"], ["output"]),
    ]
    return _saved(path, nodes, {"rows": rows, "zero": np.zeros((), np.float32), **more}, names)


def _saved(path: Path, nodes: Sequence[NodeProto], given: dict[str, np.ndarray], names: dict[str, str]) -> Path:
    """A model with ultralytics' metadata; the nodes compute `output`, of the shape of `rows`, from `images`."""
    graph = helper.make_graph(
        nodes,
        "model",
        [_VALUE("images", _FLOAT, [1, 3, 64, 64])],
        [_VALUE("output", _FLOAT, list(given["rows"].shape))],
        [numpy_helper.from_array(array, name) for name, array in given.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    labels = "{" + ", ".join(f"{number}: {label!r}" for number, label in names.items()) + "}"
    for key, text in {"names": labels, "task": "detect"}.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, text
    path.write_bytes(model.SerializeToString())
    return path


_SIDE, _STRIDES = 64, (8, 16, 32)


def toy_model(path: Path, *, batch: int | None = None, kind: int = TensorProto.FLOAT, gain: float = 1.0) -> Path:
    """A fast detector in the layout of YOLOv8: each cell is a box, "bright" by the picture's brightness there, and
    "dark" by the rest.

    Args:
        batch: its fixed batch size, None for any.
        kind: type of input and output.
        gain: factor of the weights; results are clipped to the range of scores.
    """
    node, constant = helper.make_node, numpy_helper.from_array
    nodes = [node("Cast", ["images"], ["float"], to=_FLOAT), node("Conv", ["float", "grey"], ["seen"])]
    for stride in _STRIDES:
        nodes.append(node("AveragePool", ["seen"], [f"cells{stride}"], kernel_shape=[stride] * 2, strides=[stride] * 2))
        nodes.append(node("Reshape", [f"cells{stride}", "row"], [f"row{stride}"]))
    nodes += [
        node("Concat", [f"row{stride}" for stride in _STRIDES], ["all"], axis=2),
        node("Clip", ["all", "zero", "one"], ["bright"]),
        node("Sub", ["one", "bright"], ["dark"]),
        node("Mul", ["bright", "zero"], ["nothing"]),
        node("Add", ["boxes", "nothing"], ["placed"]),
        node("Concat", ["placed", "bright", "dark"], ["found"], axis=1),
        node("Cast", ["found"], ["output"], to=kind),
    ]
    given: dict[str, np.ndarray] = {
        "grey": np.full((1, 3, 1, 1), gain / 3, np.float32),
        "row": np.array([0, 1, -1], np.int64),
        "zero": np.zeros((), np.float32),
        "one": np.ones((), np.float32),
        "boxes": _cells()[None],
    }
    size: int | str = batch or "batch"
    graph = helper.make_graph(
        nodes,
        "toy",
        [_VALUE("images", kind, [size, 3, _SIDE, _SIDE])],
        [_VALUE("output", kind, [size, 6, given["boxes"].shape[2]])],
        [constant(array, name) for name, array in given.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, {"names": "{0: 'bright', 1: 'dark'}"})
    path.write_bytes(model.SerializeToString())
    return path


def _cells() -> np.ndarray:
    """Centre and size of each cell, (4, n)."""
    rows = []
    for stride in _STRIDES:
        y, x = np.mgrid[0:_SIDE:stride, 0:_SIDE:stride]
        sizes = np.full(x.size, stride)
        rows.append(np.stack((x.ravel() + stride / 2, y.ravel() + stride / 2, sizes, sizes)))
    return np.concatenate(rows, axis=1).astype(np.float32)
