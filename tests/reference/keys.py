"""Keys of the configuration as its structs have them: name, type, default, and the text under the field."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from textwrap import dedent

import msgspec
import yaml
from msgspec import inspect as types

Struct = type[msgspec.Struct]


@dataclass(frozen=True)
class Key:
    """One key of a mapping.

    Attributes:
        default: `msgspec.NODEFAULT` for a key that must be there.
    """

    name: str
    type: types.Type
    default: object
    explanation: str

    @property
    def is_required(self) -> bool:
        return self.default is msgspec.NODEFAULT

    @property
    def structs(self) -> list[Struct]:
        """The mappings that it may be, or that its items may be, in the order of the code."""
        return sorted(_structs_in(self.type), key=lambda cls: (cls.__module__, inspect.getsourcelines(cls)[1]))

    @property
    def is_section(self) -> bool:
        """It is a mapping of keys, and nothing else."""
        return isinstance(self.type, types.StructType)


@cache
def explanations(cls: Struct) -> Mapping[str, str]:
    """The texts under the fields of a struct and of its bases, by the fields' names."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not issubclass(base, msgspec.Struct) or base is msgspec.Struct:
            continue
        (tree,) = ast.parse(dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for field, below in pairwise(tree.body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and _is_text(below):
                found[field.target.id] = " ".join(ast.literal_eval(below.value).split())  # type: ignore[attr-defined]
    return found


def keys_of(cls: Struct) -> list[Key]:
    """The keys of a mapping, in order.

    Raises:
        ValueError: one has no explanation.
    """
    known = types.type_info(cls)
    assert isinstance(known, types.StructType)
    found = []
    for field in known.fields:
        if field.name not in explanations(cls):
            raise ValueError(f"{cls.__name__}.{field.name}: has no explanation: write a text under the field")
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        found.append(Key(field.encode_name, field.type, default, explanations(cls)[field.name]))
    return found


def own_keys(cls: Struct, shared: list[Key]) -> list[Key]:
    """The keys that a struct has beside these."""
    names = {key.name for key in shared}
    return [key for key in keys_of(cls) if key.name not in names]


def shared_keys(structs: list[Struct]) -> list[Key]:
    """The keys of the closest base that structs have in common; none for a single one."""
    if len(structs) == 1:
        return []
    base = next(each for each in structs[0].__mro__ if all(issubclass(other, each) for other in structs))
    return keys_of(base)


def tag_of(cls: Struct) -> str | None:
    """The value of `type` that names it among others."""
    tag = cls.__struct_config__.tag
    return None if tag is None else str(tag)


def summary(cls: Struct) -> str:
    """The docstring of a struct as an explanation: in one line, without its full stop."""
    text = " ".join((cls.__doc__ or "").split()).rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def all_structs(cls: Struct) -> Iterator[Struct]:
    """A struct and all within it, each once."""
    seen, waiting = set(), [cls]
    while waiting:
        each = waiting.pop()
        if each not in seen:
            seen.add(each)
            yield each
            waiting += [inner for key in keys_of(each) for inner in key.structs]


def as_yaml(value: object) -> str:
    """A value in one line."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_yaml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {as_yaml(item)}' for key, item in value.items())}}}"
    if isinstance(value, msgspec.Struct):
        return as_yaml(msgspec.structs.asdict(value))
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return f"{value:.15g}"
    text = str(value) if isinstance(value, Path) else value
    assert isinstance(text, str)
    return text if " " not in text and yaml.safe_load(text) == text else json.dumps(text)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _structs_in(kind: types.Type) -> Iterator[Struct]:
    if isinstance(kind, types.StructType):
        yield kind.cls
    elif isinstance(kind, types.UnionType):
        for each in kind.types:
            yield from _structs_in(each)
    elif isinstance(kind, types.ListType):
        yield from _structs_in(kind.item_type)
    elif isinstance(kind, types.DictType):
        yield from _structs_in(kind.value_type)
