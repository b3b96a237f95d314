"""Sources in the API's format: configuration, state, and an ETag."""

from __future__ import annotations

import hmac
import secrets
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from daemon.capture.host import HostedCapture
from daemon.config.sources import SourceConfig
from daemon.control.changes import Changes
from daemon.control.sources import SourceManager
from daemon.http.answers import json_answer, plain
from daemon.redact import scrub, written_of


class SourceRows:
    """The sources as they are now."""

    def __init__(self, changes: Changes, sources: SourceManager) -> None:
        self._changes, self._sources = changes, sources
        self._tag_key = secrets.token_bytes()

    def find(self, request: Request) -> SourceConfig:
        """The source that the request's path names.

        Raises:
            HTTPException: 404.
        """
        id = request.path_params["id"]
        for source in self._changes.config.sources:
            if source.id == id:
                return source
        raise HTTPException(404, "no such source")

    def all(self) -> list[dict[str, Any]]:
        captures = {capture.id: capture for capture in self._sources.captures}
        return [_row(source, captures.get(source.id)) for source in self._changes.config.sources]

    def one(self, source: SourceConfig) -> dict[str, Any]:
        return _row(source, next((row for row in self._sources.captures if row.id == source.id), None))

    def answer(self, source: SourceConfig, status: int = 200) -> Response:
        """The source with its ETag."""
        response = json_answer(self.one(source), status)
        response.headers["ETag"] = self.tag(source)
        return response

    def tag(self, source: SourceConfig) -> str:
        """An ETag of the source's configuration, secrets included."""
        content = msgspec.json.encode(source, enc_hook=written_of)
        return f'"{hmac.digest(self._tag_key, content, "sha256").hex()[:32]}"'


def pending_row(source: SourceConfig) -> dict[str, Any]:
    """A source that a member of the fleet is about to own."""
    state = "connecting" if source.enabled else "disabled"
    return {"config": plain(source), "state": state, "format": None, "failure": None}


def _row(source: SourceConfig, capture: HostedCapture | None) -> dict[str, Any]:
    return {
        "config": plain(source),
        "state": capture.state if capture else "ended" if source.enabled else "disabled",
        "format": plain(capture.format) if capture and capture.format else None,
        "failure": scrub(capture.failure) if capture and capture.failure else None,
    }
