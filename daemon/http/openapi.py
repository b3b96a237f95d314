"""The OpenAPI 3.1 document of the API; its schemas come from the configuration's types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from daemon.config import SOURCE_KINDS
from daemon.fleet.figures import OwnFigures
from daemon.fleet.status import FleetStatus
from daemon.http.events import KINDS, MAX_LIMIT
from daemon.http.fleet import BODIES
from daemon.redact import Secret
from lookoutd.messages import Counts, Event, VideoFormat

_RANGES = ("before", "from", "until")  # of numbers, and of times
_REF = "#/components/schemas/{name}"


def document() -> dict[str, Any]:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lookout", "version": "1"},
        "security": [{"token": []}],
        "paths": {
            "/live": {"get": _health("Every part of the daemon works")},
            "/ready": {"get": _health("At least one source is up, and a model on a server gives results")},
            "/startup": {"get": _health("Started")},
            "/metrics": {"get": _operation("Figures for Prometheus", {"200": {"description": "text"}})},
            "/openapi.json": {"get": _operation("This", {"200": _answer("This", {})})},
            **_source_paths(),
            **_event_paths(),
            **_fleet_paths(),
            "/api/v1/daemon": {"get": _operation("This daemon, for the page", {"200": _answer("It", _ref("Daemon"))})},
            "/api/v1/config": {"get": _operation("Without secrets", {"200": _answer("It", {"type": "object"})})},
            "/api/v1/reload": {
                "post": _operation("Read the file again", {"200": _answer("What changed", {"type": "object"}),
                                                           **_wrong(409, 422, 503, 504)})
            },
        },
        "components": {"schemas": _schemas(), "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }  # fmt: skip


def _schemas() -> dict[str, Any]:
    _, schemas = msgspec.json.schema_components(
        (*SOURCE_KINDS, VideoFormat, Event, Counts, FleetStatus, OwnFigures, *BODIES.values()),
        schema_hook=_hook,
        ref_template=_REF,
    )
    schemas["Source"] = {"oneOf": [{"$ref": _REF.format(name=kind.__name__)} for kind in SOURCE_KINDS]}
    schemas["Row"] = _object(
        {
            "config": {"type": "object"},
            "state": {"enum": ["connecting", "up", "stalled", "down", "ended", "disabled"]},
            "format": {"anyOf": [{"type": "null"}, {"$ref": _REF.format(name="VideoFormat")}]},
            "failure": {"type": ["string", "null"]},
        }
    )
    schemas["Daemon"] = _object(
        {
            "version": {"type": "string"},
            "instance": {"type": "string"},
            "endpoint": {"type": "string", "description": "where subscribers connect"},
            "model": {"type": "string"},
            "labels": {"type": "array", "items": {"type": "string"}},
            "tracked": {"type": "array", "items": {"type": "string"}, "description": "sources whose objects have ids"},
            "persists": {"type": "boolean", "description": "persist=true is possible"},
            "fleet": {"type": ["string", "null"], "description": "the name of its fleet"},
        }
    )
    schemas["Events"] = _object(
        {
            "events": {"type": "array", "items": _ref("Event")},
            "next": {"type": "integer", "description": "`since` of the next request"},
            "more": {"type": "boolean", "description": "there are more behind `next` now"},
            "lost": {"type": "integer", "description": "events since the start that the journal could not take"},
        }
    )
    schemas["Fleet"] = {
        "allOf": [
            _ref("FleetStatus"),
            {"type": "object", "properties": {"own": _ref("OwnFigures")}, "required": ["own"]},
        ]
    }
    schemas["Moves"] = _object(
        {
            "moves": {"type": "array", "items": {"type": "object"}, "description": "source, before, after"},
            "before": {"type": "object", "description": "the fullest resource of each member"},
            "after": {"type": "object"},
        }
    )
    schemas["AllCounts"] = _object({"counts": {"type": "array", "items": _ref("Counts")}})
    schemas["Health"] = _object({"ok": {"type": "boolean"}, "reasons": {"type": "array", "items": {"type": "string"}}})
    schemas["Check"] = _object({"ok": {"type": "boolean"}, "lines": {"type": "array", "items": {"type": "string"}}})
    schemas["Error"] = _object({"error": {"type": "string"}})
    return schemas


def _source_paths() -> dict[str, Any]:
    row, rows = _ref("Row"), {"type": "array", "items": _ref("Row")}
    patch = {"type": "object", "description": "Keys of a source, by RFC 7396: null is the default."}
    one = "/api/v1/sources/{id}"
    return {
        "/api/v1/sources": {
            "get": _operation("The sources", {"200": _answer("All", rows)}),
            "post": _operation("Add a source",
                               {"201": _answer("It", row), "202": _answer("It, for the fleet to place", row),
                                **_wrong(409)}, body=_ref("Source")),
        },
        "/api/v1/check": {
            "post": {
                **_operation("Try a source that would be added, or changes of the one that `id` names",
                             {"200": _answer("Whether it would work, and why not", _ref("Check"))}, body=patch),
                "parameters": [_parameter("id", "query", {"type": "string"})],
            },
        },
        one: {
            "parameters": [_parameter("id", "path", {"type": "string"})],
            "get": _operation("A source", {"200": _answer("It", row), **_wrong(404)}),
            "put": _operation("Replace it", {"200": _answer("It", row)}, body=_ref("Source"), tag=True),
            "patch": _operation("Change some of its keys", {"200": _answer("It", row)}, body=patch, tag=True),
            "delete": _operation("Remove it", {"204": {"description": "Gone"}, **_wrong(404, 409)}, persist=True),
        },
        f"{one}/snapshot.jpg": {
            "parameters": [_parameter("id", "path", {"type": "string"})],
            "get": {
                **_operation("Its next frame", {"200": {"description": "JPEG", "content": {"image/jpeg": {}}},
                                                **_wrong(404, 409, 503, 504)}),
                "parameters": [_parameter("boxes", "query", {"type": "boolean"})],
            },
        },
    }  # fmt: skip


def _event_paths() -> dict[str, Any]:
    return {
        "/api/v1/events": {
            "get": {
                **_operation("Events of the journal: those behind `since`, or else the newest",
                             {"200": _answer("In the order of their numbers", _ref("Events")),
                              **_wrong(400, 404, 503)}),
                "parameters": [
                    _parameter("since", "query", {"type": "integer", "minimum": 0}),
                    _parameter("limit", "query", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}),
                    _parameter("source", "query", {"type": "string", "minLength": 1}),
                    _parameter("kind", "query", {"enum": list(KINDS)}),
                    _parameter("rule", "query", {"type": "string", "minLength": 1}),
                    _parameter("label", "query", {"type": "string", "minLength": 1}),
                    *(_parameter(name, "query", {"type": "integer", "minimum": 0}) for name in _RANGES),
                ],
            }
        },
        "/api/v1/events/{id}/snapshot.jpg": {
            "parameters": [_parameter("id", "path", {"type": "string"})],
            "get": _operation("The picture of an event", {"200": {"description": "JPEG",
                                                                  "content": {"image/jpeg": {}}}, **_wrong(404)}),
        },
        "/api/v1/counts": {
            "get": {
                **_operation("Totals and occupancy of each source",
                             {"200": _answer("Now", _ref("AllCounts")), **_wrong(400)}),
                "parameters": [_parameter("source", "query", {"type": "string", "minLength": 1})],
            }
        },
    }  # fmt: skip


def _fleet_paths() -> dict[str, Any]:
    none = {"type": "object"}
    commands = {
        "drain": ("Take all sources from a member", none),
        "undrain": ("Let a member have sources again", none),
        "move": ("Move sources to a member", none),
        "rebalance": ("Move sources from full members to empty ones", _ref("Moves")),
    }
    wrong = _wrong(404, 409, 422, 503)
    return {
        "/api/v1/fleet": {"get": _operation("The fleet, and this member", {"200": _answer("It", _ref("Fleet")),
                                                                           **_wrong(404, 503)})},
        **{
            f"/api/v1/fleet/{name}": {
                "post": {
                    **_operation(words, {"200": _answer("Done", answer), **_wrong(400, 408, 413, 415), **wrong}),
                    "requestBody": {
                        "required": True,
                        "content": {"application/json": {"schema": _ref(BODIES[name].__name__)}},
                    },
                }
            }
            for name, (words, answer) in commands.items()
        },
    }  # fmt: skip


def _operation(
    summary: str,
    responses: dict[str, Any],
    *,
    body: dict[str, Any] | None = None,
    persist: bool = False,
    tag: bool = False,
) -> dict[str, Any]:
    """Args:
    body: schema of the request body.
    persist: the change can be persisted; implied by `body`.
    tag: the change accepts If-Match.
    """
    operation: dict[str, Any] = {"summary": summary, "responses": {**responses, **_wrong(401, 403)}}
    if body or persist:
        operation["parameters"] = [_parameter("persist", "query", {"type": "boolean"})]
        operation["responses"] |= _wrong(400, 422, 503, 504)
    if tag:
        operation["parameters"].append(_parameter("If-Match", "header", {"type": "string"}))
        operation["responses"] |= _wrong(404, 409, 412)
    if body:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
        operation["responses"] |= _wrong(408, 413, 415)
    return operation


def _health(summary: str) -> dict[str, Any]:
    answers = {"200": _answer("Yes", _ref("Health")), "503": _answer("No, and why", _ref("Health"))}
    return {"summary": summary, "security": [], "responses": answers}


def _answer(words: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": words, "content": {"application/json": {"schema": schema}}}


def _wrong(*codes: int) -> dict[str, Any]:
    return {str(code): _answer("Why not", _ref("Error")) for code in codes}


def _parameter(name: str, place: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": _REF.format(name=name)}


def _hook(kind: type) -> dict[str, Any]:
    if issubclass(kind, Secret | Path):
        return {"type": "string"}
    raise NotImplementedError
