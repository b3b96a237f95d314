"""Facts about an ONNX file's graph, read from the bytes: the package onnx is not installed where a CPU detects.

Field numbers are those of onnx.proto (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

# Fields of messages that are read here.
_MODEL_GRAPH, _MODEL_FUNCTIONS, _FUNCTION_NODE = 7, 25, 7
_NODE, _INITIALIZER, _INPUT, _SPARSE = 1, 5, 11, 15
_NODE_INPUT, _NODE_OUTPUT, _OPERATOR, _ATTRIBUTE = 1, 2, 4, 5
_ATTRIBUTE_NAME, _TENSOR, _SUBGRAPH, _INTS, _TENSORS, _SUBGRAPHS, _SPARSE_TENSOR = 1, 5, 6, 8, 10, 11, 22
_TENSOR_NAME, _EXTERNAL = 8, 13
_KEY, _VALUE = 1, 2
_NAME = 1
_MIN_PATCH = 4  # pixels; smaller strides are those of convolutional networks
_MAX_DEPTH = 64  # of graphs inside of graphs
# Operators that may come before the first convolution: they normalise, quantise, or move pixels.
_ARITHMETIC = ("Add", "Cast", "Div", "Mul", "Sub", "QuantizeLinear", "DequantizeLinear")
_MOVES = ("Concat", "Gather", "Identity", "Pad", "Slice", "Split", "Transpose")
_BEFORE_STEM = frozenset((*_ARITHMETIC, *_MOVES))

Kernel = tuple[int, int]
"""Width of a convolution's kernel, and its stride."""


class DamagedFileError(Exception):
    """The bytes are no ONNX file."""


@dataclass(frozen=True)
class OnnxGraph:
    """Facts about a graph.

    Attributes:
        operators: types of all nodes, those of subgraphs included, and how many there are.
        stem: the convolutions that read the picture.
        external: locations of external weights, in order of their first use, and the bytes that each must have.
    """

    operators: Mapping[str, int] = field(default_factory=dict)
    stem: tuple[Kernel, ...] = ()
    external: Mapping[str, int] = field(default_factory=dict)

    def count(self, operator: str) -> int:
        """Number of nodes of a type."""
        return self.operators.get(operator, 0)

    @property
    def reads_patches(self) -> bool:
        """Whether the picture is divided into patches, as a vision transformer does."""
        return any(stride >= _MIN_PATCH and width == stride for width, stride in self.stem)


@dataclass(frozen=True)
class _Node:
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kernel: Kernel


def graph_of(content: bytes) -> OnnxGraph | None:
    """The facts of an ONNX file; None if the content is none, which its runtime reports."""
    try:
        return read_graph(content)
    except DamagedFileError:
        return None


def read_graph(content: bytes) -> OnnxGraph:
    """Read the facts of an ONNX file.

    Raises:
        DamagedFileError: the content is no ONNX file.
    """
    reader = _Reader()
    found = False
    for number, value in _fields(memoryview(content)):
        if number == _MODEL_GRAPH and isinstance(value, memoryview):
            found = True
            reader.graph(value)
        elif number == _MODEL_FUNCTIONS and isinstance(value, memoryview):
            for _, node in _messages(value, _FUNCTION_NODE):
                reader.node(node, 1)
    if not found:
        raise DamagedFileError("it has no graph")
    return OnnxGraph(reader.operators, tuple(reader.stem), reader.external)


class _Reader:
    """Walks through a graph and its subgraphs."""

    def __init__(self) -> None:
        self.operators: dict[str, int] = {}
        self.stem: list[Kernel] = []
        self.external: dict[str, int] = {}

    def graph(self, content: memoryview, depth: int = 0) -> None:
        """Read a graph; of the main one also the stem."""
        if depth > _MAX_DEPTH:
            raise DamagedFileError("its graphs lie too deep in each other")
        nodes, inputs, weights = [], [], set()
        for number, value in _messages(content, _NODE, _INITIALIZER, _INPUT, _SPARSE):
            if number == _NODE:
                nodes.append(self.node(value, depth))
            elif number == _INPUT:
                inputs.append(_text_of(value, _NAME))
            else:
                weights.add(self._tensor(value, sparse=number == _SPARSE))
        if depth == 0:
            self.stem = _stem([name for name in inputs if name not in weights], nodes)

    def node(self, content: memoryview, depth: int) -> _Node:
        operator, kernel = "", {"kernel_shape": 0, "strides": 1}
        inputs: list[str] = []
        outputs: list[str] = []
        for number, value in _messages(content, _NODE_INPUT, _NODE_OUTPUT, _OPERATOR, _ATTRIBUTE):
            if number == _ATTRIBUTE:
                self._attribute(value, kernel, depth)
            elif number == _OPERATOR:
                operator = _decoded(value)
            else:
                (inputs if number == _NODE_INPUT else outputs).append(_decoded(value))
        self.operators[operator] = self.operators.get(operator, 0) + 1
        return _Node(operator, tuple(inputs), tuple(outputs), (kernel["kernel_shape"], kernel["strides"]))

    def _attribute(self, content: memoryview, kernel: dict[str, int], depth: int) -> None:
        name = _text_of(content, _ATTRIBUTE_NAME)
        ints: list[int] = []
        for number, value in _fields(content):
            if number == _INTS:
                ints += [value] if isinstance(value, int) else _packed(value)
            elif number in (_TENSOR, _TENSORS, _SPARSE_TENSOR) and isinstance(value, memoryview):
                self._tensor(value, sparse=number == _SPARSE_TENSOR)
            elif number in (_SUBGRAPH, _SUBGRAPHS) and isinstance(value, memoryview):
                self.graph(value, depth + 1)
        if name in kernel and ints:
            kernel[name] = ints[-1]

    def _tensor(self, content: memoryview, *, sparse: bool) -> str:
        """The tensor's name; notes where it lies, if that is another file."""
        if sparse:  # values and indices
            names = [self._tensor(part, sparse=False) for _, part in _messages(content, 1, 2)]
            return names[0] if names else ""
        name, place = "", {"offset": "0", "length": "0"}
        for number, value in _messages(content, _TENSOR_NAME, _EXTERNAL):
            if number == _TENSOR_NAME:
                name = _decoded(value)
            else:
                place[_text_of(value, _KEY)] = _text_of(value, _VALUE)
        if (location := place.get("location")) is not None:
            begin, length = (int(place[key]) if place[key].isdecimal() else 0 for key in ("offset", "length"))
            self.external[location] = max(self.external.get(location, 0), begin + length)
        return name


def _stem(inputs: list[str], nodes: list[_Node]) -> list[Kernel]:
    """The convolutions that read an input, or what is made of it before."""
    seen, found = set(inputs), []
    for node in nodes:  # in topological order
        if not seen.intersection(node.inputs):
            continue
        if node.operator == "Conv":
            found.append(node.kernel)
        elif node.operator in _BEFORE_STEM:
            seen.update(node.outputs)
    return found


def _messages(content: memoryview, *numbers: int) -> Iterator[tuple[int, memoryview]]:
    """The fields with one of these numbers that have a length: messages and texts."""
    for number, value in _fields(content):
        if number in numbers and isinstance(value, memoryview):
            yield number, value


def _text_of(content: memoryview, number: int) -> str:
    """The last text with this number; empty without one."""
    texts = [value for _, value in _messages(content, number)]
    return _decoded(texts[-1]) if texts else ""


def _decoded(value: memoryview) -> str:
    return bytes(value).decode("utf-8", "replace")


def _packed(content: memoryview) -> list[int]:
    numbers, at = [], 0
    while at < len(content):
        number, at = _varint(content, at)
        numbers.append(number)
    return numbers


def _fields(content: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field; of fixed size the bytes."""
    at, end = 0, len(content)
    while at < end:
        tag, at = _varint(content, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(content, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, at = _varint(content, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise DamagedFileError(f"it has a field of the unknown kind {kind}")
        if size > end - at:
            raise DamagedFileError("it ends too early")
        yield tag >> 3, content[at : at + size]
        at += size


def _varint(content: memoryview, at: int) -> tuple[int, int]:
    """A number, and the place after it."""
    number = shift = 0
    while at < len(content) and shift < 70:
        byte = content[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at
    raise DamagedFileError("it ends too early")
