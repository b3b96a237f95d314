"""docs/configuration.md: a table of keys for each mapping, with types, limits, defaults and explanations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import singledispatch

from msgspec import inspect as types

from daemon.config.root import Config
from daemon.redact import Secret
from daemon.validation import allowed_values
from tests.reference.keys import Key, Struct, as_yaml, keys_of, own_keys, shared_keys, summary, tag_of

_HEAD = """\
# Configuration

[config.yaml](../config.yaml) has every key once, with its default, and runs as it is. `lookout init` writes a short
one for your cameras, and `lookout check -c FILE` tries it. Unknown keys are refused. `${NAME}` is replaced from the
environment in URLs and secrets, and nowhere else; `$${NAME}` is that text itself. Relative paths are relative to the
file.

A key without a default must be there. A mapping within another one has a table of its own, under its path. `make
config` makes this page and config.yaml from the code.
"""
_TAIL = """\
## The whole file

```{literalinclude} ../config.yaml
:language: yaml
```
"""
_COLUMNS = "| key | value | default | |\n|---|---|---|---|"
_DEEPEST = 4  # level of a heading that the site has a link to
_SECTIONS = {key.structs[0]: key.name for key in keys_of(Config) if key.is_section}


def page() -> str:
    """The text of the page."""
    parts = [_HEAD, "## Keys at the top\n", _table(keys_of(Config), "")]
    for key in keys_of(Config):
        if key.structs and not _section_of_items(key):
            parts += _mapping(key, key.name, 2)
    return "\n".join([*parts, _TAIL])


def _mapping(key: Key, path: str, level: int) -> Iterator[str]:
    """Headings and tables of a key whose value is a mapping, or a list of mappings, and of those within."""
    shared = shared_keys(key.structs)
    yield f"{'#' * level} {path}\n"
    if level == 2:
        yield f"{_sentence(key.explanation)}\n"
    if shared:
        yield _table([_type_of(key.structs, shared[0]), *shared], path)
        yield from _within(shared, path, level)
    for struct in key.structs:
        own = own_keys(struct, shared)
        if shared:
            yield f"{'#' * min(level + 1, _DEEPEST)} {path}, type {tag_of(struct)}\n"
            yield f"{_sentence(summary(struct))}\n"
        yield from [_table(own, path)] if own else ["It has no further keys.\n"]
        yield from _within(own, path, level)


def _within(keys: Sequence[Key], path: str, level: int) -> Iterator[str]:
    for key in keys:
        if key.structs:
            yield from _mapping(key, f"{path}.{key.name}", min(level + 1, _DEEPEST))


def _type_of(structs: Sequence[Struct], beside: Key) -> Key:
    """The key that names one of several mappings."""
    known = types.LiteralType(values=tuple(tag_of(struct) for struct in structs))
    return Key("type", known, beside.default, "the keys that it has beside these")


def _table(keys: Sequence[Key], path: str) -> str:
    """Rows of keys that are in the mapping at a path."""
    rows = [f"| `{key.name}` | {_value(key, path)} | {_default(key)} | {_plain(key.explanation)} |" for key in keys]
    return "\n".join([_COLUMNS, *rows, ""])


def _value(key: Key, path: str) -> str:
    """The allowed values, with a link to the table of a mapping."""
    anchor = _section_of_items(key) or f"{path}.{key.name}".replace(".", "")
    before, found, after = _plain(allowed(key.type)).rpartition("a mapping")  # of a mapping by names, its items
    return f"{before}[{found}](#{anchor}){after}" if found and key.structs else f"{before}{found}{after}"


def _section_of_items(key: Key) -> str | None:
    """The section whose keys the items of a mapping by names have."""
    return _SECTIONS.get(key.structs[0]) if isinstance(key.type, types.DictType) and key.structs else None


def _default(key: Key) -> str:
    return "" if key.is_required or key.is_section else f"`{as_yaml(key.default)}`"


def _sentence(text: str) -> str:
    return f"{_plain(text[:1].upper() + text[1:])}."


def _plain(text: str) -> str:
    """An explanation as Markdown: code stays, no other sign means anything, and documents are links."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(piece if piece[:1] == "`" else _escaped(piece) for piece in pieces)


def _escaped(text: str) -> str:
    signs = re.sub(r"([*|<\\]|(?<!\w)_|_(?!\w))", r"\\\1", text)
    return re.sub(r"\bdocs/([a-z-]+\.md)", r"[\1](\1)", signs)


@singledispatch
def allowed(kind: types.Type) -> str:
    """The allowed values of a type, in words."""
    return allowed_values(kind)


@allowed.register
def _(kind: types.UnionType) -> str:
    words = {allowed(one) for one in kind.types}  # in an order that msgspec chooses
    return " or ".join(sorted(words, key=lambda word: (word == "`null`", word)))


@allowed.register
def _(_kind: types.NoneType) -> str:
    return "`null`"


@allowed.register
def _(kind: types.LiteralType) -> str:
    *others, last = [f"`{as_yaml(value)}`" for value in sorted(kind.values, key=str)]
    return f"{', '.join(others)} or {last}" if others else last


@allowed.register
def _(kind: types.CustomType) -> str:
    return "a secret" if kind.cls is Secret else allowed_values(kind)


@allowed.register(types.ListType)
@allowed.register(types.VarTupleType)
def _(kind: types.ListType | types.VarTupleType) -> str:
    size = f" of {kind.min_length}" if kind.min_length and kind.min_length == kind.max_length else ""
    return f"a list{size}; each is {allowed(kind.item_type)}"


@allowed.register
def _(kind: types.TupleType) -> str:
    each = list(dict.fromkeys(map(allowed, kind.item_types)))
    return f"a list of {len(kind.item_types)}; each is {' or '.join(each)}"


@allowed.register
def _(kind: types.DictType) -> str:
    of = "" if isinstance(kind.value_type, types.AnyType) else f"; each value is {allowed(kind.value_type)}"
    return f"a mapping{of}"


@allowed.register
def _(_kind: types.StructType) -> str:
    return "a mapping"
