"""One operation of the API: its path, the right that it needs, its handler, and what OpenAPI tells about it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from daemon.http.access import Right

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Handler = Callable[[Request], Awaitable[Response]]
_REF = "#/components/schemas/{name}"
_IN_PATH = re.compile(r"{(\w+)}")


@dataclass(frozen=True)
class Schema:
    """A JSON schema.

    Attributes:
        name: of the component; empty for one that stands where it is used.
        uses: schemas and structs that it refers to.
    """

    content: Mapping[str, Any]
    name: str = ""
    uses: tuple[Shape, ...] = ()


Shape = Schema | type[msgspec.Struct]  # of a struct the schema is made


@dataclass(frozen=True)
class Parameter:
    """A parameter of a query or a header; those in a path are known from it."""

    name: str
    schema: Mapping[str, Any]
    place: Literal["query", "header", "path"] = "query"


@dataclass(frozen=True)
class Answer:
    """
    Attributes:
        words: what it is.
        shape: of its JSON; None where it has none.
        media_type: of content that is not JSON.
    """

    words: str
    shape: Shape | None = None
    media_type: str = ""


@dataclass(frozen=True)
class Operation:
    """A row of the table.

    Attributes:
        answers: by status.
        errors: statuses that its handler may refuse with. Those of the right and of a body are added.
        body: of the request; None for one without.
    """

    method: Method
    path: str
    handler: Handler
    right: Right
    summary: str
    answers: Mapping[int, Answer]
    errors: tuple[int, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    body: Shape | None = None

    @property
    def in_path(self) -> tuple[Parameter, ...]:
        """The parameters of its path."""
        return tuple(Parameter(name, {"type": "string"}, "path") for name in _IN_PATH.findall(self.path))

    @property
    def shapes(self) -> list[Shape]:
        """Of the body and the answers."""
        return [shape for shape in (self.body, *(answer.shape for answer in self.answers.values())) if shape]


def record(name: str, properties: Mapping[str, Any], *uses: Shape) -> Schema:
    """An object with these keys, all of which it has."""
    return Schema({"type": "object", "properties": properties, "required": [*properties]}, name, uses)


def array(shape: Shape) -> Schema:
    """An array of these, where it is used."""
    return Schema({"type": "array", "items": reference(shape)}, uses=(shape,))


def reference(shape: Shape) -> Mapping[str, Any]:
    """The schema as it stands where it is used."""
    if isinstance(shape, Schema):
        return {"$ref": _REF.format(name=shape.name)} if shape.name else shape.content
    return {"$ref": _REF.format(name=shape.__name__)}


OBJECT = Schema({"type": "object"})
ANYTHING = Schema({})
JPEG = Answer("JPEG", media_type="image/jpeg")
