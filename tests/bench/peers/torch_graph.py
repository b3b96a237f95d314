"""Makes a module of onnx2torch exportable.

Its modules read shapes, axes and scales from tensors, which torch.export refuses as values that depend on data. For one
shape of the inputs they are constants. This file is loaded by its path and imports numpy and torch alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import fx

# Modules whose further inputs are shapes, axes, places or scales, by the beginnings of their classes' names.
_READS_NUMBERS = ("Slice", "Resize", "Split", "Tile", "Pad", "Reduce", "TopK", "Upsample")
_RESHAPES = ("Reshape", "Squeeze", "Unsqueeze")  # also those whose result has another shape alone
_SHAPES = ("Shape", "Size")


class Numbers(np.ndarray):
    """An array with the methods of a tensor that these modules call."""

    def detach(self) -> Numbers:
        return self

    def cpu(self) -> Numbers:
        return self

    def numpy(self) -> Any:
        return np.asarray(self)

    def nelement(self) -> int:
        return int(self.size)


class Bound(torch.nn.Module):  # type: ignore[misc]
    """A module with some of its inputs known.

    Args:
        inputs: of the module; None for those that are still to come.
        named: further ones by name.
    """

    def __init__(self, module: Callable[..., Any], inputs: list[Any], named: dict[str, Any]) -> None:
        super().__init__()
        self._module, self._known, self._named = module, inputs, named

    def forward(self, *inputs: Any, **named: Any) -> Any:
        rest = iter(inputs)
        return self._module(*(next(rest) if known is None else known for known in self._known), **self._named, **named)


class _Values(fx.Interpreter):  # type: ignore[misc]
    """Runs a module and keeps the value of each node."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.values: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        self.values[n] = super().run_node(n)
        return self.values[n]


def specialised(module: fx.GraphModule, inputs: tuple[Any, ...]) -> fx.GraphModule:
    """The module for these shapes of the inputs, in place: what does not depend on their values is a constant."""
    run = _Values(module)
    with torch.no_grad():
        run.run(*inputs)
    known: set[fx.Node] = set()
    for node in list(module.graph.nodes):
        if node.op == "get_attr" or (node.op.startswith("call") and _is_known(module, node, known)):
            known.add(node)
    for number, node in enumerate(list(module.graph.nodes)):
        if node.op == "call_module" and node not in known:
            kind = _kind(module, node)
            if kind.startswith(_RESHAPES) or kind == "Expand":
                shape = tuple(run.values[node].shape)
                node.op, node.target = "call_function", torch.broadcast_to if kind == "Expand" else torch.reshape
                node.args, node.kwargs = (node.args[0], shape), {}
            elif kind.startswith(_READS_NUMBERS):
                _bind(module, node, known, run.values, f"bound_{number}")
    for number, node in enumerate(list(module.graph.nodes)):
        if node in known and node.op != "get_attr" and isinstance(run.values[node], torch.Tensor):
            _store(module, node, run.values[node], f"known_{number}")
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def _kind(module: fx.GraphModule, node: fx.Node) -> str:
    return type(module.get_submodule(str(node.target))).__name__.removeprefix("Onnx")


def _is_known(module: fx.GraphModule, node: fx.Node, known: set[fx.Node]) -> bool:
    if node.op == "call_module" and _kind(module, node).startswith(_SHAPES):
        return True
    return all(source in known for source in node.all_input_nodes)


def _bind(module: fx.GraphModule, node: fx.Node, known: set[fx.Node], values: dict[fx.Node, Any], name: str) -> None:
    """Give a module the numbers that it reads."""

    def numbers(arg: Any) -> Any:
        return values[arg].cpu().numpy().view(Numbers) if arg in known else arg

    inputs = [numbers(arg) if arg in known else None for arg in node.args]
    named = {key: numbers(arg) for key, arg in node.kwargs.items() if arg in known or not isinstance(arg, fx.Node)}
    module.add_submodule(name, Bound(module.get_submodule(str(node.target)), inputs, named))
    node.target = name
    node.args = tuple(arg for arg in node.args if arg not in known)
    node.kwargs = {key: arg for key, arg in node.kwargs.items() if key not in named}


def _store(module: fx.GraphModule, node: fx.Node, value: Any, name: str) -> None:
    """Put a constant in the place of the node that computes it."""
    module.register_buffer(name, value)
    with module.graph.inserting_before(node):
        constant = module.graph.get_attr(name)
    node.replace_all_uses_with(constant)
