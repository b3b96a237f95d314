"""A last step for every file: small, and the same whenever it is made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

DATE = "2026-01-01T00:00:00+00:00"


def finish(path: Path) -> None:
    """Set the date of the metadata; leave out the shapes of inner tensors, and shorten their names.

    Names and shapes of inner tensors are two thirds of such small files. Weights, operators, inputs, outputs and
    metadata stay as the exporter writes them.
    """
    model = onnx.load(str(path))
    graph = model.graph
    if any(attribute.type == onnx.AttributeProto.GRAPH for node in graph.node for attribute in node.attribute):
        raise ValueError(f"{path.name} has inner graphs, whose tensors have names of their own")
    del graph.value_info[:]
    kept = {"", *(value.name for value in (*graph.input, *graph.output))}
    short = {name: f"t{number}" for number, name in enumerate(dict.fromkeys(_names(graph))) if name not in kept}
    for value in graph.initializer:
        value.name = short.get(value.name, value.name)
    for node in graph.node:
        node.name = node.doc_string = ""
        node.input[:] = [short.get(name, name) for name in node.input]
        node.output[:] = [short.get(name, name) for name in node.output]
    for pair in model.metadata_props:
        if pair.key == "date":
            pair.value = DATE
    onnx.checker.check_model(model)
    onnx.save(model, str(path))


def _names(graph: Any) -> Iterator[str]:
    yield from (value.name for value in graph.initializer)
    for node in graph.node:
        yield from node.output
