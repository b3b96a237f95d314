"""Element types of a graph's tensors, and the nodes whose operands do not agree.

A strongly typed network converts nothing by itself: each operand of a node must have the type that the operation asks
for. The rules are those of onnx's schemas. An operation that onnx does not know is not checked, nor is a tensor whose
type follows from such an operation alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from functools import cache
from typing import NamedTuple

import onnx
from onnx import TensorProto, defs

from detectors.port import DetectorError

_TYPES = {f"tensor({name.lower()})": int(number) for name, number in TensorProto.DataType.items()}
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "output_datatype")  # which name the type of the first output
_FOLLOWED = {"EyeLike": 0, "RandomNormalLike": 0, "RandomUniformLike": 0, "Bernoulli": 0, "DequantizeLinear": 1}
_DEFAULTS = {
    "ConstantOfShape": TensorProto.FLOAT,
    "RandomNormal": TensorProto.FLOAT,
    "RandomUniform": TensorProto.FLOAT,
    "QuantizeLinear": TensorProto.UINT8,
}
_VALUES = {"float": TensorProto.FLOAT, "int": TensorProto.INT64, "string": TensorProto.STRING}  # of Constant
_ONE_FLOAT = ("GridSample",)  # onnx lets its operands be floats of different types, GPU runtimes do not
_STANDARD = ("", "ai.onnx")


class Place(NamedTuple):
    """The types that an operation takes at an input, or makes at an output.

    Attributes:
        variable: places with the same one have one type; empty if others do not matter.
        allowed: element types; empty if all are.
    """

    variable: str = ""
    allowed: frozenset[int] = frozenset()


Versions = Mapping[str, int]
"""Opset of each domain."""


def versions_of(model: onnx.ModelProto) -> Versions:
    """The opsets that a model imports."""
    return {"" if row.domain in _STANDARD else row.domain: row.version for row in model.opset_import}


def places(node: onnx.NodeProto, versions: Versions) -> tuple[list[Place], list[Place]] | None:
    """The place of each input and output; None if onnx does not know the operation."""
    domain = "" if node.domain in _STANDARD else node.domain
    found = _schema(node.op_type, domain, versions.get(domain, 0))
    if found is None:
        return None
    inputs, outputs = (_spread(*side, count) for side, count in zip(found, (len(node.input), len(node.output))))
    followed = _FOLLOWED.get(node.op_type, len(inputs))
    if outputs and followed < len(inputs) and not _named_type(node):
        outputs[0] = outputs[0]._replace(variable=inputs[followed].variable)
    return inputs, outputs


def types_of(model: onnx.ModelProto) -> MutableMapping[str, int]:
    """Element type of every tensor of the main graph that is known."""
    return _Walk(model).types


def conflicts(model: onnx.ModelProto) -> list[str]:
    """The nodes whose operands do not agree, those of subgraphs included: a line each."""
    return _Walk(model).conflicts


def check_types(model: onnx.ModelProto, file: object) -> None:
    """Check that the types of all operands agree.

    Args:
        file: the model's, for the message.

    Raises:
        DetectorError: a node has operands of wrong types.
    """
    if found := conflicts(model):
        raise DetectorError(f"{file}: {found[0]}: export the model in FP32 throughout")


class _Walk:
    """Finds types from inputs to outputs, and conflicts on its way.

    Attributes:
        types: of the main graph's tensors.
        conflicts: lines.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._versions = versions_of(model)
        self.conflicts: list[str] = []
        self.types = self._graph(model.graph, {})

    def _graph(self, graph: onnx.GraphProto, outer: Mapping[str, int]) -> dict[str, int]:
        """Types of the tensors that nodes of a graph may read."""
        types = {**outer, **{weight.name: weight.data_type for weight in graph.initializer}}
        types |= {weight.values.name: weight.values.data_type for weight in graph.sparse_initializer}
        types |= {entry.name: _declared(entry) for entry in graph.input}
        declared = {entry.name: _declared(entry) for entry in (*graph.value_info, *graph.output)}
        for node in graph.node:
            found = self._node(node, types)
            types |= {name: kind or declared.get(name, 0) for name, kind in zip(node.output, found) if name}
        for entry in graph.output:
            made, wanted = types.get(entry.name, 0), _declared(entry)
            if made and wanted and made != wanted:
                self.conflicts.append(f"output {entry.name} is declared as {_name(wanted)}, but is {_name(made)}")
        return types

    def _node(self, node: onnx.NodeProto, types: Mapping[str, int]) -> list[int]:
        """Types of a node's outputs; 0 where not known."""
        inner = self._subgraphs(node, types)
        asked = places(node, self._versions)
        if asked is None:
            return [0] * len(node.output)
        kinds = [types.get(name, 0) for name in node.input]
        bound: dict[str, int] = {}
        for line in _disagreements(node, asked[0], kinds, bound):
            self.conflicts.append(f"node {node.name or node.output[0]} ({node.op_type}) {line}")
        made = [bound.get(place.variable, 0) or _only(place.allowed) for place in asked[1]]
        if made and not (given := _named_type(node)):
            made[0] = made[0] or _DEFAULTS.get(node.op_type, 0)
        elif made:
            made[0] = given
        return [kind or within for kind, within in zip(made, inner)] if inner else made

    def _subgraphs(self, node: onnx.NodeProto, types: Mapping[str, int]) -> list[int]:
        """Types of the outputs of a branch or loop; empty for other nodes."""
        made: list[int] = []
        for graph in (row.g for row in node.attribute if row.HasField("g")):
            for entry, name in zip(graph.input, node.input):  # a loop's own are in the order of the node's
                given, wanted = types.get(name, 0), _declared(entry)
                if given and wanted and given != wanted:
                    self._differ(node, f"reads {_name(given)} ({name}) as {_name(wanted)} ({entry.name})")
            within = self._graph(graph, types)
            outputs = [within.get(entry.name, 0) or _declared(entry) for entry in graph.output]
            outputs = outputs[1:] if node.op_type == "Loop" else outputs  # the first says whether it goes on
            for name, one, other in zip(node.output, made, outputs):
                if one and other and one != other:
                    self._differ(node, f"makes {_name(one)} in one branch and {_name(other)} in the other ({name})")
            made = made or outputs
        return made

    def _differ(self, node: onnx.NodeProto, line: str) -> None:
        self.conflicts.append(f"node {node.name or node.output[0]} ({node.op_type}) {line}")


def _disagreements(node: onnx.NodeProto, asked: list[Place], kinds: list[int], bound: dict[str, int]) -> Iterator[str]:
    """Lines about inputs of wrong types; sets the type of each variable."""
    first: dict[str, str] = {}
    for name, place, kind in zip(node.input, asked, kinds):
        if not kind:
            continue
        variable = "a float" if node.op_type in _ONE_FLOAT and kind in _FLOATS else place.variable
        if place.allowed and kind not in place.allowed:
            yield f"reads {_name(kind)} ({name}), but takes {_names(place.allowed)}"
        elif variable in first and bound[variable] != kind:
            other = f"{_name(bound[variable])} ({first[variable]})"
            yield f"reads {other} and {_name(kind)} ({name}), which must be one type"
        elif place.variable:
            bound.setdefault(place.variable, kind)
            bound.setdefault(variable, kind)
            first.setdefault(variable, name)


def _named_type(node: onnx.NodeProto) -> int:
    """The type that an attribute gives to the first output; 0 if none does."""
    for row in node.attribute:
        if row.name in _TYPE_ATTRIBUTES and row.i:
            return int(row.i)
        if row.name == "value" and node.op_type in ("Constant", "ConstantOfShape"):
            return int(row.t.data_type)
        if row.name == "sparse_value":
            return int(row.sparse_tensor.values.data_type)
        if node.op_type == "Constant" and row.name.startswith("value_"):
            return int(_VALUES[row.name.removeprefix("value_").removesuffix("s")])
    return 0


@cache
def _schema(
    operation: str, domain: str, version: int
) -> tuple[tuple[tuple[Place, ...], bool], tuple[tuple[Place, ...], bool]] | None:
    """The places of inputs and outputs; whether the last stands for any number of them."""
    try:
        schema = defs.get_schema(operation, version, domain)
    except defs.SchemaError:
        return None
    constraints = {row.type_param_str: row.allowed_type_strs for row in schema.type_constraints}
    found = []
    for parameters in (schema.inputs, schema.outputs):
        row = tuple(_place(parameter, constraints) for parameter in parameters)
        variadic = defs.OpSchema.FormalParameterOption.Variadic
        found.append((row, bool(parameters) and parameters[-1].option == variadic))
    return found[0], found[1]


def _place(parameter: defs.OpSchema.FormalParameter, constraints: Mapping[str, list[str]]) -> Place:
    texts = constraints.get(parameter.type_str, [parameter.type_str])
    allowed = frozenset(_TYPES[text] for text in texts if text in _TYPES)
    if not allowed:  # a sequence or the like, which has no element type here
        return Place()
    variable = parameter.type_str if parameter.is_homogeneous else ""
    return Place(variable, allowed if len(allowed) == len(texts) else frozenset())


def _spread(row: tuple[Place, ...], variadic: bool, count: int) -> list[Place]:
    """As many places as a node has inputs."""
    last = row[-1] if variadic else Place()
    return [row[number] if number < len(row) else last for number in range(count)]


def _declared(entry: onnx.ValueInfoProto) -> int:
    return int(entry.type.tensor_type.elem_type)


def _only(kinds: frozenset[int]) -> int:
    return next(iter(kinds)) if len(kinds) == 1 else 0


def _name(kind: int) -> str:
    return str(TensorProto.DataType.Name(kind))


def _names(kinds: frozenset[int]) -> str:
    """A list of types for a message: floats alone, where there are any."""
    floats = [kind for kind in _FLOATS if kind in kinds]
    return " or ".join(map(_name, floats or sorted(kinds)))
