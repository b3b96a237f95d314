"""Makes the input size of a YOLOv8 file dynamic that was exported for one size, with the same weights.

Such a file has the centres of its grid cells and their strides as constants, and the numbers of cells in the shapes of
reshapes. Here they follow from the sizes of the three feature maps.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, helper, numpy_helper

_STRIDES = (8, 16, 32)
_CELLS = 8400  # at 640x640
_LARGEST = 2048  # pixels a side
_HEIGHT_AND_WIDTH = np.array([2, 3], np.int64)


def with_dynamic_size(source: Path, target: Path) -> Path:
    """Write the file with a dynamic height and width; returns its path."""
    model = onnx.load(source)
    graph = model.graph
    maps = _feature_maps(graph)
    _free_reshapes(graph)
    nodes = list(graph.node)
    last = max(number for number, node in enumerate(nodes) if node.output[0] in maps)
    made = _grids(graph, maps)
    del graph.node[:]
    graph.node.extend([*nodes[: last + 1], *made, *nodes[last + 1 :]])
    for name, dims in ((graph.input[0], ((2, "height"), (3, "width"))), (graph.output[0], ((2, "cells"),))):
        for axis, text in dims:
            name.type.tensor_type.shape.dim[axis].dim_param = text
    del graph.value_info[:]
    onnx.checker.check_model(model)
    onnx.save(model, target)
    return target


def _feature_maps(graph: GraphProto) -> list[str]:
    """The three maps with distances, the finest first: inputs of the reshapes to 64 rows."""
    values = {row.name: numpy_helper.to_array(row) for row in graph.initializer}
    found = []
    for node in graph.node:
        if node.op_type == "Reshape" and values.get(node.input[1], np.zeros(0)).tolist()[1:2] == [64]:
            found.append((int(values[node.input[1]][2]), node.input[0]))
    return [name for _, name in sorted(found, reverse=True)]


def _free_reshapes(graph: GraphProto) -> None:
    """The batch is copied, and the number of cells follows."""
    shapes = {node.input[1] for node in graph.node if node.op_type == "Reshape"}
    for row in graph.initializer:
        if row.name in shapes:
            shape = numpy_helper.to_array(row).copy()
            shape[0], shape[-1] = 0, -1
            row.CopyFrom(numpy_helper.from_array(shape, row.name))


def _grids(graph: GraphProto, maps: list[str]) -> list[NodeProto]:
    """Nodes that compute the constants (1, 2, n) of centres and (1, n) of strides, whose places they take."""
    assert sum(tuple(row.dims) == (1, 2, _CELLS) for row in graph.initializer) == 2
    nodes: list[NodeProto] = []
    for number, (stride, name) in enumerate(zip(_STRIDES, maps)):
        count = _LARGEST // stride
        y, x = np.mgrid[0:count, 0:count].astype(np.float32) + 0.5
        rows = {f"centres{number}": np.stack((x, y))[None], f"strides{number}": np.full((1, 1, count, count), stride)}
        for grid, values in rows.items():
            graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), f"{grid}.all"))
        nodes += [
            helper.make_node("Shape", [name], [f"shape{number}"]),
            helper.make_node("Slice", [f"shape{number}", "sides.from", "sides.to"], [f"sides{number}"]),
        ]
        for grid, shape in ((f"centres{number}", "centres.shape"), (f"strides{number}", "strides.shape")):
            inputs = [f"{grid}.all", "sides.none", f"sides{number}", "sides.axes"]
            nodes.append(helper.make_node("Slice", inputs, [f"{grid}.map"]))
            nodes.append(helper.make_node("Reshape", [f"{grid}.map", shape], [grid]))
    constants = {
        "sides.from": np.array([2]),
        "sides.to": np.array([4]),
        "sides.none": np.array([0, 0]),
        "sides.axes": _HEIGHT_AND_WIDTH,
        "centres.shape": np.array([1, 2, -1]),
        "strides.shape": np.array([1, -1]),
    }
    graph.initializer.extend(numpy_helper.from_array(row.astype(np.int64), name) for name, row in constants.items())
    for kind, dims in (("centres", (1, 2, _CELLS)), ("strides", (1, _CELLS))):
        parts = [f"{kind}{number}" for number in range(len(maps))]
        nodes.append(helper.make_node("Concat", parts, [f"{kind}.now"], axis=-1))
        old = [row for row in graph.initializer if tuple(row.dims) == dims]
        for row in old:
            graph.initializer.remove(row)
        _rename(graph, {row.name for row in old}, f"{kind}.now")
    return nodes


def _rename(graph: GraphProto, old: set[str], new: str) -> None:
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name in old:
                node.input[place] = new
