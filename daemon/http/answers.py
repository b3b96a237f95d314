"""Answers as JSON, and the errors that end a request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from daemon.errors import ConfigError, LookoutError
from daemon.fleet.operations import UnknownError
from daemon.fleet.port import CoordinatorAwayError
from daemon.redact import Secret
from detectors.port import DetectorError


class GoneError(LookoutError):
    """The source was removed before the change was applied."""


class ChangedError(LookoutError):
    """The source has changed since the client read it."""


def json_answer(content: object, status: int = 200) -> Response:
    try:
        body = msgspec.json.encode(content)
    except UnicodeEncodeError:  # it names a file whose name is no UTF-8
        body = json.dumps(msgspec.to_builtins(content)).encode()
    return Response(body, status, media_type="application/json")


def plain(value: object) -> Any:
    """Plain JSON values; secrets are masked."""
    return msgspec.to_builtins(value, enc_hook=_hook)


def _hook(value: object) -> str:
    if isinstance(value, Secret | Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be encoded")


async def _gone(_: Request, error: Exception) -> Response:
    return json_answer({"error": str(error)}, 404)


async def _changed(_: Request, error: Exception) -> Response:
    return json_answer({"error": str(error)}, 412)


async def _away(_: Request, error: Exception) -> Response:
    return json_answer({"error": str(error)}, 503)


async def _failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - starlette calls it for nothing else
    response = json_answer({"error": error.detail}, error.status_code)
    response.headers.update(error.headers or {})
    return response


async def _refused(_: Request, error: Exception) -> Response:
    """An error that the caller can correct."""
    mistakes = {"mistakes": error.mistakes} if isinstance(error, ConfigError) and error.mistakes else {}
    return json_answer({"error": str(error), **mistakes}, 422 if isinstance(error, ConfigError) else 409)


ERROR_HANDLERS: dict[Any, Any] = {
    HTTPException: _failed,
    GoneError: _gone,
    ChangedError: _changed,
    UnknownError: _gone,
    CoordinatorAwayError: _away,
    LookoutError: _refused,
    DetectorError: _refused,
}
