"""Converts a graph to FP16, for backends that read precision from the graph."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, inliner, numpy_helper

from detectors.port import DetectorError
from detectors.tensor_types import Versions, check_types, places, types_of, versions_of

_FLOAT, _HALF = int(TensorProto.FLOAT), int(TensorProto.FLOAT16)
_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_FLOAT_INPUTS = (("Resize", 1), ("Resize", 2))  # region and scales are FP32
_FP16_MAX = float(np.finfo(np.float16).max)
_MIN_SCALE = 2.0**-14  # of quantisation; smaller scales lose digits in FP16
_QUANTISING = ("QuantizeLinear", "DequantizeLinear")
_QUANTISING_OPSET = 19  # the first that quantises FP16
_LISTS = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
_BOUNDED = ("Clip", "Max", "Min", "Where")  # their bounds are clipped to FP16's range: a larger bound has no effect
_FP32_NODES_KEY = "lookout.fp32_nodes"  # of the file's metadata


def to_half(model: onnx.ModelProto, keep: frozenset[str] = frozenset(), file: object = "the model") -> onnx.ModelProto:
    """Convert a model in place to FP16 input, weights and arithmetic, with FP32 outputs.

    Nodes after the last weighted layer stay FP32: they compute boxes in pixels, and above 512 FP16 has a resolution of
    half a pixel. Nodes that compute from sizes alone stay FP32 for the same reason. Nodes with a weight beyond FP16's
    range stay FP32, and so do branches, loops, operations that have no FP16, and those listed in the file. Every
    operand gets the type that its node asks for.

    Args:
        keep: names of further nodes that stay FP32, see `fp32_nodes`.
        file: the model's, for messages.

    Raises:
        DetectorError: the model lacks a node to keep, its own types do not agree, or some of them are not known.
    """
    if model.functions:
        model.CopyFrom(inliner.inline_local_functions(model))
    graph = model.graph
    keep |= fp32_nodes(model)
    if unknown := keep - {node.name for node in graph.node}:
        raise DetectorError(f"{file} has no node {min(unknown)!r} to keep in FP32")
    types = types_of(model)
    floats = {name for name, kind in types.items() if kind == _FLOAT}
    _constants_to_initializers(graph)
    _raise_opset(model)
    full, versions = _staying(graph, keep), versions_of(model)
    body = [node for number, node in enumerate(graph.node) if number not in full]
    if unclear := next(_unclear(body, {name for name, kind in types.items() if not kind}, versions), None):
        raise DetectorError(f"{file}: {unclear}: set model.precision: fp32")
    asked = [_asked(node, versions, floats, number in full) for number, node in enumerate(graph.node)]
    _halve_weights(graph, asked)
    made = {name: kind for node, (_, kinds) in zip(graph.node, asked) for name, kind in zip(node.output, kinds)}
    for entry in graph.input:
        if entry.type.tensor_type.elem_type == _FLOAT:
            entry.type.tensor_type.elem_type = made[entry.name] = _HALF
    for node, (_, kinds) in zip(graph.node, asked):
        if _HALF in kinds:
            _make_half(node)
    _cast_between(graph, asked, made)
    del graph.value_info[:]
    check_types(model, file)
    return model


def keep_in_fp32(model: onnx.ModelProto, nodes: frozenset[str]) -> None:
    """Write into a float model's metadata which nodes `to_half` leaves FP32."""
    entry = next((row for row in model.metadata_props if row.key == _FP32_NODES_KEY), None)
    entry = entry or model.metadata_props.add(key=_FP32_NODES_KEY)
    entry.value = "\n".join(sorted(nodes))


def fp32_nodes(model: onnx.ModelProto) -> frozenset[str]:
    """The nodes that stay FP32, from the file's metadata."""
    rows = (row.value.split("\n") for row in model.metadata_props if row.key == _FP32_NODES_KEY)
    return frozenset(name for names in rows for name in names if name)


def tail(graph: onnx.GraphProto) -> set[int]:
    """Indices of the nodes after the last weighted layer on every path to an output."""
    before_weights: set[str] = set()  # tensors that a weighted layer depends on
    after: set[int] = set()
    for number in reversed(range(len(graph.node))):  # ONNX keeps nodes in topological order
        node = graph.node[number]
        if node.op_type in _WEIGHTED or before_weights.intersection(node.output):
            before_weights.update(reads(node))
        else:
            after.add(number)
    return after


def _staying(graph: onnx.GraphProto, keep: frozenset[str]) -> set[int]:
    """Indices of the nodes that stay FP32, whatever FP16 their operations have."""
    large = _beyond_half(graph)
    named = {number for number, node in enumerate(graph.node) if node.name in keep}
    wide = {at for at, node in enumerate(graph.node) if large.intersection((*reads(node), *node.output))}
    return tail(graph) | of_sizes(graph) | named | wide


def of_sizes(graph: onnx.GraphProto) -> set[int]:
    """Indices of the nodes that compute from tensors' sizes alone: grids, counts, positions."""
    constants = {weight.name for weight in graph.initializer}
    sizes: set[str] = set()
    found: set[int] = set()
    for number, node in enumerate(graph.node):
        read = {name for name in reads(node) if name} - constants
        if node.op_type in ("Shape", "Size") or (read and sizes.issuperset(read)):
            sizes.update(node.output)
            found.add(number)
        elif not read:
            constants.update(node.output)
    return found


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """The tensors that a node reads, those that its branches or loop read of the graph around them included."""
    yield from node.input
    for graph in _subgraphs(node):
        own = {entry.name for entry in (*graph.input, *graph.initializer)}
        own |= {name for inner in graph.node for name in inner.output}
        inside = [name for inner in graph.node for name in reads(inner)]
        yield from (name for name in (*inside, *(entry.name for entry in graph.output)) if name not in own)


def _subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [row.g for row in node.attribute if row.HasField("g")]


Asked = tuple[list[int], list[int]]
"""FP32 or FP16 for each input and output of a node that is a float, otherwise 0."""


def _asked(node: onnx.NodeProto, versions: Versions, floats: set[str], full: bool) -> Asked:
    """The types that a node asks for.

    Args:
        floats: tensors that are FP32 in the file.
        full: whether it stays FP32.
    """
    found = None if full or _subgraphs(node) else places(node, versions)
    stays = [_FLOAT if name in floats else 0 for name in node.input]
    stays_out = [_FLOAT if name in floats else 0 for name in node.output]
    if found is None:
        return stays, stays_out
    inputs = [
        _HALF if kind and (not place.allowed or _HALF in place.allowed) and at not in _FLOAT_INPUTS else kind
        for kind, place, at in zip(stays, found[0], ((node.op_type, number) for number in range(len(stays))))
    ]
    types = {place.variable: kind for place, kind in zip(found[0], inputs) if kind and place.variable}
    if node.op_type in ("Cast", "ConstantOfShape"):  # their type is an attribute
        types[found[1][0].variable] = _HALF
    outputs = [kind and types.get(place.variable, 0) for kind, place in zip(stays_out, found[1])]
    if any(kind and not type_ for kind, type_ in zip(stays_out, outputs)):
        return stays, stays_out  # an operation that makes FP32 whatever it reads
    return inputs, outputs


def _unclear(body: list[onnx.NodeProto], unknown: set[str], versions: Versions) -> Iterator[str]:
    """Lines about nodes that read tensors of unknown types, which come of operations that onnx does not know."""
    for node in body:
        for name, place in zip(node.input, (places(node, versions) or ([], []))[0]):
            if name in unknown and _HALF in place.allowed:
                yield f"node {node.name or node.output[0]} ({node.op_type}) reads {name}, whose type is not known"


def _make_half(node: onnx.NodeProto) -> None:
    """Have a node make FP16 where an attribute says FP32."""
    if node.op_type == "Cast":
        next(row for row in node.attribute if row.name == "to").i = _HALF
    elif node.op_type == "ConstantOfShape":
        value = np.clip(_filling(node), -_FP16_MAX, _FP16_MAX).astype(np.float16)
        del node.attribute[:]
        node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(value)))


def _filling(node: onnx.NodeProto) -> npt.NDArray[np.generic]:
    """The value of a ConstantOfShape."""
    for row in node.attribute:
        return np.asarray(numpy_helper.to_array(row.t))
    return np.zeros(1, np.float32)


def _constants_to_initializers(graph: onnx.GraphProto) -> None:
    """Replace Constant nodes by initializers, except outputs of the graph, which a node must make."""
    kept = []
    outputs = {entry.name for entry in graph.output}
    for node in graph.node:
        value = node.attribute[0] if node.op_type == "Constant" and not outputs.intersection(node.output) else None
        if value is not None and value.name == "value":
            graph.initializer.append(value.t)
            graph.initializer[-1].name = node.output[0]
        elif value is not None and value.name in _LISTS:
            array = np.array(helper.get_attribute_value(value), _LISTS[value.name])
            graph.initializer.append(numpy_helper.from_array(array, node.output[0]))
        else:
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)


def _raise_opset(model: onnx.ModelProto) -> None:
    """Raise a quantised model to the first opset that quantises FP16, and rewrite operators that changed."""
    version = next(entry for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    graph = model.graph
    if version.version >= _QUANTISING_OPSET or not any(node.op_type in _QUANTISING for node in graph.node):
        return
    for node in graph.node:
        if node.op_type == "Split" and len(node.input) < 2:
            node.attribute.append(helper.make_attribute("num_outputs", len(node.output)))
        axes = next((row for row in node.attribute if row.name == "axes"), None)
        if node.op_type.startswith("Reduce") and axes is not None:
            name = f"{node.output[0]}_axes"
            graph.initializer.append(numpy_helper.from_array(np.array(axes.ints, np.int64), name))
            node.input.append(name)
            node.attribute.remove(axes)
    version.version = _QUANTISING_OPSET
    model.ir_version = max(model.ir_version, 9)


def _beyond_half(graph: onnx.GraphProto) -> set[str]:
    """Constants beyond FP16's range that a node computes with, except bounds."""
    bounds = {name for node in graph.node if node.op_type in _BOUNDED for name in node.input}
    values = {weight.name: weight for weight in graph.initializer if weight.data_type == _FLOAT}
    arrays = [(name, numpy_helper.to_array(weight)) for name, weight in values.items() if name not in bounds]
    arrays += [(node.output[0], _filling(node)) for node in graph.node if node.op_type == "ConstantOfShape"]
    return {name for name, array in arrays if name not in bounds and not np.abs(array).max(initial=0) <= _FP16_MAX}


def _halve_weights(graph: onnx.GraphProto, asked: list[Asked]) -> None:
    """Give the nodes that ask for them FP16 copies of their constants."""
    floats = {weight.name: weight for weight in graph.initializer if weight.data_type == _FLOAT}
    halves: dict[str, str] = {}
    scales: set[str] = set()
    for node, (kinds, _) in zip(graph.node, asked):
        for place, (name, kind) in enumerate(zip(node.input, kinds)):
            if name in floats and kind == _HALF:
                scales.update([name] if node.op_type in _QUANTISING and place == 1 else [])
                node.input[place] = halves.setdefault(name, f"{name}_fp16")
                kinds[place] = 0  # done
    for name, half in halves.items():
        values = np.clip(numpy_helper.to_array(floats[name]), -_FP16_MAX, _FP16_MAX).astype(np.float16)
        if name in scales:
            values = np.maximum(values, np.float16(_MIN_SCALE))
        graph.initializer.append(numpy_helper.from_array(values, half))
    used = {name for node in graph.node for name in reads(node)}
    kept = [weight for weight in graph.initializer if weight.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _cast_between(graph: onnx.GraphProto, asked: list[Asked], made: dict[str, int]) -> None:
    """Add a cast for each tensor that is FP16 but read as FP32, or the reverse; the model's outputs become FP32.

    Args:
        asked: of each node.
        made: types of the tensors that are floats.
    """
    nodes = list(graph.node)
    outputs = {entry.name for entry in graph.output if made.get(entry.name) == _HALF}
    wanted = [dict(_wanted(node, kinds)) for node, (kinds, _) in zip(nodes, asked)]
    edges = {edge for row in wanted for edge in row.items()}
    up = {name for name, kind in edges if kind == _FLOAT and made.get(name) == _HALF} - outputs
    down = {name for name, kind in edges if kind == _HALF and made.get(name) == _FLOAT}
    # An output keeps its name as FP32 and is renamed before its cast; other tensors are renamed after their cast.
    before = {name: f"{name}_fp16" for name in outputs}
    wide, narrow = {name: f"{name}_fp32" for name in up}, {name: f"{name}_fp16" for name in down}
    casts = {half: _cast(half, name, _FLOAT) for name, half in sorted(before.items())}
    casts |= {name: _cast(name, float32, _FLOAT) for name, float32 in sorted(wide.items())}
    casts |= {name: _cast(name, half, _HALF) for name, half in sorted(narrow.items())}
    ordered: list[onnx.NodeProto] = []
    for node, row in zip(nodes, wanted):
        names = {_FLOAT: wide, _HALF: before | narrow}
        _rename(node, {name: names[kind].get(name, name) for name, kind in row.items()})
        node.output[:] = [before.get(name, name) for name in node.output]
        ordered.append(node)
        ordered.extend(casts.pop(name) for name in node.output if name in casts)
    del graph.node[:]
    graph.node.extend([*casts.values(), *ordered])  # the remaining casts read the model's input


def _wanted(node: onnx.NodeProto, kinds: list[int]) -> Iterator[tuple[str, int]]:
    """The tensors that a node reads as floats, with the type; its branches and loops read FP32."""
    yield from ((name, kind) for name, kind in zip(node.input, kinds) if kind)
    if _subgraphs(node):
        yield from ((name, _FLOAT) for name in reads(node))


def _rename(node: onnx.NodeProto, names: dict[str, str]) -> None:
    """Rename what a node reads, in its branches and loops too."""
    node.input[:] = [names.get(name, name) for name in node.input]
    for graph in _subgraphs(node):
        for inner in graph.node:
            _rename(inner, names)
        for entry in graph.output:
            entry.name = names.get(entry.name, entry.name)


def _cast(name: str, result: str, to: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [name], [result], to=to)


def with_float_outputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """Convert FP16 outputs of a model to FP32, in place."""
    graph = model.graph
    halves = [entry for entry in graph.output if entry.type.tensor_type.elem_type == TensorProto.FLOAT16]
    names = {entry.name: f"{entry.name}_fp16" for entry in halves}
    for node in graph.node if names else ():
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for entry in halves:
        graph.node.append(_cast(names[entry.name], entry.name, TensorProto.FLOAT))
        entry.type.tensor_type.elem_type = TensorProto.FLOAT
    return model
