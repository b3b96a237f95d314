"""Types of keys, and the mapping that all sections are."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar, runtime_checkable

import msgspec

from detectors.port import is_address

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Pixels = Annotated[int, msgspec.Meta(ge=1, le=16_384)]
# A list, because msgspec 0.22 confuses the limits of a number with those of a tuple beside it.
InputSize = Pixels | Annotated[list[Pixels], msgspec.Meta(min_length=2, max_length=2)]
Rate = Annotated[float, msgspec.Meta(ge=0.001, le=1000)]  # frames a second
Seconds = Annotated[float, msgspec.Meta(ge=0.001, le=3600)]
Unit = Annotated[float, msgspec.Meta(ge=0, le=1)]
Hits = Annotated[int, msgspec.Meta(ge=1, le=100)]
SourceId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
MAX_MODELS = 8  # that look at one source


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping of config.yaml."""


VARIABLE = re.compile(r"(\$)?\$\{([A-Za-z_][A-Za-z0-9_]*)\}")  # with one more $ it stands for itself
StructT = TypeVar("StructT", bound=msgspec.Struct)


@runtime_checkable
class Anchored(Protocol):
    """A section with paths that are not of the type Path."""

    def anchored(self, folder: Path) -> Any:
        """A copy with absolute paths."""
        ...


def anchored(section: StructT, folder: Path) -> StructT:
    """A copy of a section whose relative paths are of this folder, and those of sections within it."""
    values = ((name, getattr(section, name)) for name in section.__struct_fields__)
    return msgspec.structs.replace(section, **{name: _anchored_value(value, folder) for name, value in values})


def _anchored_value(value: Any, folder: Path) -> Any:
    if isinstance(value, Path):
        return absolute(folder, value)
    if isinstance(value, list):
        return [_anchored_value(row, folder) for row in value]
    if isinstance(value, dict):
        return {key: _anchored_value(row, folder) for key, row in value.items()}
    if isinstance(value, Anchored):
        return value.anchored(folder)
    return anchored(value, folder) if isinstance(value, msgspec.Struct) else value


def absolute(folder: Path, path: Path) -> Path:
    """A path of a configuration in this folder; addresses of servers stay as they are."""
    if is_address(path):
        return path
    with suppress(RuntimeError):  # nobody of that name
        path = path.expanduser()
    return folder / path


def literal(text: str) -> str:
    """A text as it is written in a configuration, so that nothing in it is replaced: `${NAME}` becomes `$${NAME}`."""
    return VARIABLE.sub(lambda match: f"${match[0]}", text)
