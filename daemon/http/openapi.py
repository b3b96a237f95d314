"""The OpenAPI 3.1 document of a table of operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from daemon.http.operation import Answer, Operation, Parameter, Schema, Shape, reference
from daemon.redact import Secret

_ERROR = Schema(
    {
        "type": "object",
        "properties": {
            "error": {"type": "string"},
            "mistakes": {
                "type": "array",
                "items": {"type": "string"},
                "description": "of a configuration, where there are several; `error` has the first ones",
            },
        },
        "required": ["error"],
    },
    "Error",
)
_OF_RIGHT = (401, 403)
_OF_BODY = (400, 408, 413, 415)


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lookout", "version": "1"},
        "security": [{"token": []}],
        "paths": _paths(operations),
        "components": {
            "schemas": _schemas([_ERROR, *(shape for row in operations for shape in row.shapes)]),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _paths(operations: Iterable[Operation]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for row in operations:
        item = paths.setdefault(row.path, {})
        if row.in_path:
            item["parameters"] = [_parameter(parameter) for parameter in row.in_path]
        item[row.method.lower()] = _operation(row)
    return paths


def _operation(row: Operation) -> dict[str, Any]:
    is_public = row.right == "public"
    errors = {*row.errors, *(() if is_public else _OF_RIGHT), *(_OF_BODY if row.body else ())}
    answers = {**row.answers, **{status: Answer("Why not", _ERROR) for status in sorted(errors)}}
    described: dict[str, Any] = {
        "summary": row.summary,
        "responses": {str(status): _answer(answer) for status, answer in answers.items()},
    }
    if is_public:
        described["security"] = []
    if row.parameters:
        described["parameters"] = [_parameter(parameter) for parameter in row.parameters]
    if row.body:
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": reference(row.body)}}}
    return described


def _answer(answer: Answer) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if answer.shape:
        content["application/json"] = {"schema": reference(answer.shape)}
    if answer.media_type:
        content[answer.media_type] = {}
    return {"description": answer.words, **({"content": content} if content else {})}


def _parameter(row: Parameter) -> dict[str, Any]:
    return {"name": row.name, "in": row.place, "required": row.place == "path", "schema": row.schema}


def _schemas(shapes: Iterable[Shape]) -> dict[str, Any]:
    """The components, with all that they refer to."""
    named: dict[str, Mapping[str, Any]] = {}
    structs: dict[type[msgspec.Struct], None] = {}
    open_shapes = [*shapes]
    while open_shapes:
        shape = open_shapes.pop()
        if isinstance(shape, Schema):
            named |= {shape.name: shape.content} if shape.name else {}
            open_shapes += shape.uses
        else:
            structs[shape] = None
    _, components = msgspec.json.schema_components(
        structs, schema_hook=_hook, ref_template="#/components/schemas/{name}"
    )
    return {**components, **named}


def _hook(kind: type) -> dict[str, Any]:
    if issubclass(kind, Secret | Path):
        return {"type": "string"}
    raise NotImplementedError
