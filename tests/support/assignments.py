"""Assignments to attributes of objects from outside of their classes, as the source text shows them.

The class of an object is known from an annotation, from `isinstance` in an assertion, or from its constructor.
Otherwise each class is meant that has such an attribute: those of the file and those that it imports, or else all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeGuard

_CONSTRUCTORS = ("__init__", "__post_init__")
_Functions = (ast.FunctionDef, ast.AsyncFunctionDef)
Known = Mapping[str, frozenset[str]]  # names of classes that a variable may be of


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All of a file's, its module first; read once."""
    return [*ast.walk(ast.parse(path.read_text()))]


@dataclass(frozen=True)
class DeclaredClass:
    """
    Attributes:
        own: attributes that it declares or assigns itself.
        bases: names.
        is_record: fields and properties, and nothing else.
        is_frozen: nobody can assign its attributes.
    """

    name: str
    path: Path
    own: frozenset[str]
    bases: tuple[str, ...]
    is_record: bool
    is_frozen: bool


@dataclass(frozen=True)
class Assignment:
    """From outside of the class.

    Attributes:
        text: the target.
        of: the class, or one that it may be.
        is_of_record: of a plain record of the same file.
    """

    line: int
    text: str
    of: str
    is_of_record: bool


class Classes:
    """All classes of some files."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._by_name: dict[str, list[DeclaredClass]] = {}
        self._found: dict[DeclaredClass, frozenset[str]] = {}  # what is asked for again for each assignment
        for path in paths:
            for node in nodes(path):
                if isinstance(node, ast.ClassDef):
                    self._by_name.setdefault(node.name, []).append(_declared(node, path))

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def having(self, attribute: str, names: Iterable[str]) -> list[DeclaredClass]:
        """Classes of these names with an attribute that can be assigned."""
        found = [row for name in names for row in self._by_name.get(name, ())]
        return [row for row in found if not row.is_frozen and attribute in self._of(row)]

    def all_having(self, attribute: str) -> list[DeclaredClass]:
        """A private class is known in its own file alone."""
        return self.having(attribute, (name for name in self._by_name if not name.startswith("_")))

    def _of(self, row: DeclaredClass) -> frozenset[str]:
        if row not in self._found:
            self._found[row] = self._attributes(row, frozenset())
        return self._found[row]

    def _attributes(self, row: DeclaredClass, below: frozenset[str]) -> frozenset[str]:
        bases = [base for name in row.bases if name not in below for base in self._by_name.get(name, ())]
        return row.own.union(*(self._attributes(base, below | {row.name}) for base in bases))


def assignments(path: Path, classes: Classes) -> Iterator[Assignment]:
    """Those of one file to objects of `classes`."""
    found = nodes(path)
    here = {node.name for node in found if isinstance(node, ast.ClassDef)}
    imported = {
        name.asname or name.name for node in found if isinstance(node, ast.ImportFrom) for name in node.names
    }  # fmt: skip
    libraries = {name.asname or name.name for node in found if isinstance(node, ast.Import) for name in node.names}
    for target, known in _targets(found[0], {}, _Makers(classes, frozenset(libraries))):
        holder = ast.unparse(target.value)
        names = known.get(holder)
        root = known.get(holder.partition(".")[0])
        if names is None and root and not any(name in classes for name in root):
            continue  # what an object of a library holds is a library's
        if names is None:
            meant = classes.having(target.attr, sorted(here | imported)) or classes.all_having(target.attr)
        else:
            meant = classes.having(target.attr, sorted(names))
        if meant:
            wrong = [row for row in meant if not (row.is_record and row.path == path)]
            row = (wrong or meant)[0]
            yield Assignment(target.lineno, ast.unparse(target), row.name, not wrong)


@dataclass(frozen=True)
class _Makers:
    """Names that a constructor may have."""

    classes: Classes
    libraries: frozenset[str]

    def __contains__(self, called: str) -> bool:
        return called in self.classes or called.partition(".")[0] in self.libraries


def _targets(node: ast.AST, known: Known, makers: _Makers) -> Iterator[tuple[ast.Attribute, Known]]:
    """Attributes of something other than the object itself that are assigned."""
    if isinstance(node, _Functions):
        known = {**known, **_known_in(node, makers)}
    is_stored = isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)
    if is_stored and isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls"):
        yield node, known
    for child in ast.iter_child_nodes(node):
        yield from _targets(child, known, makers)


def _known_in(function: ast.FunctionDef | ast.AsyncFunctionDef, makers: _Makers) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            made = {target: ast.unparse(value.func) for target, value in _pairs(node) if isinstance(value, ast.Call)}
            found |= {target: frozenset([maker]) for target, maker in made.items() if maker in makers}
            found |= {target: _names_in(value.args[0]) for target, value in _pairs(node) if _is_cast(value)}
        elif isinstance(node, ast.AnnAssign):
            found[ast.unparse(node.target)] = _names_in(node.annotation)
        elif isinstance(node, ast.Assert) and isinstance(node.test, ast.Call) and len(node.test.args) == 2:
            found[ast.unparse(node.test.args[0])] = _names_in(node.test.args[1])
        elif isinstance(node, ast.arg) and node.annotation:
            found.setdefault(node.arg, _names_in(node.annotation))
    return found


def _pairs(node: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    """Targets with their values, also of `a, b = x, y`."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(map(ast.unparse, target.elts), node.value.elts)
        else:
            yield ast.unparse(target), node.value


def _is_cast(value: ast.expr) -> TypeGuard[ast.Call]:
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "cast"


def _names_in(annotation: ast.expr) -> frozenset[str]:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    return frozenset(node.id for node in ast.walk(annotation) if isinstance(node, ast.Name))


def _declared(node: ast.ClassDef, path: Path) -> DeclaredClass:
    methods = [row for row in node.body if isinstance(row, _Functions)]
    decorators = [ast.unparse(row) for row in node.decorator_list]
    bases = tuple(ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases)
    has_slots = any("__slots__" in ast.unparse(row) for row in node.body if isinstance(row, ast.Assign))
    is_data = has_slots or "Struct" in bases or any("dataclass" in row for row in decorators)
    options = [*decorators, *(ast.unparse(row) for row in node.keywords)]
    return DeclaredClass(
        name=node.name,
        path=path,
        own=frozenset(_own_attributes(node, methods)),
        bases=bases,
        is_record=is_data and all(_is_of_record(row) for row in methods),
        is_frozen="NamedTuple" in bases or any("frozen=True" in row for row in options),
    )


def _is_of_record(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    decorators = [ast.unparse(row) for row in method.decorator_list]
    return method.name in _CONSTRUCTORS or any(row == "property" or row.endswith(".setter") for row in decorators)


def _own_attributes(node: ast.ClassDef, methods: Sequence[ast.FunctionDef | ast.AsyncFunctionDef]) -> Iterator[str]:
    for row in node.body:
        if isinstance(row, ast.AnnAssign) and isinstance(row.target, ast.Name):
            yield row.target.id
    for method in methods:
        if any(ast.unparse(row).endswith(".setter") for row in method.decorator_list):
            yield method.name
        for target in ast.walk(method):
            is_stored = isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store)
            if is_stored and isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                yield target.attr
