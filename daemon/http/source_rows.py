"""Sources in the API's format: configuration, state, and an ETag."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from daemon.http.recording_rows import RecordingRows


class SourceRows:
    """The sources as they are now.

    Args:
        recording: None for a daemon without a store.
    """

    def __init__(self, changes: Changes, sources: SourceManager, recording: RecordingRows | None = None) -> None:
        self._changes, self._sources, self._recording = changes, sources, recording
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
        return self._rows(self._changes.config.sources)

    def one(self, source: SourceConfig) -> dict[str, Any]:
        (row,) = self._rows([source])
        return row

    def _rows(self, sources: Sequence[SourceConfig]) -> list[dict[str, Any]]:
        captures = {capture.id: capture for capture in self._sources.captures}
        recording = self._recording
        recorded = recording.by_source() if recording else {}
        rows = []
        for source in sources:
            row = _row(source, captures.get(source.id))
            if recording:
                codec = row["format"]["codec"] if row["format"] else None
                row["recording"] = recording.of_source(source, codec, recorded.get(source.id, {}))
            rows.append(row)
        return rows

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
    return {"config": plain(source), "state": state, "format": None, "failure": None, "recording": None}


def _row(source: SourceConfig, capture: HostedCapture | None) -> dict[str, Any]:
    return {
        "config": plain(source),
        "state": capture.state if capture else "connecting" if source.enabled else "disabled",
        "format": plain(capture.format) if capture and capture.format else None,
        "failure": scrub(capture.failure) if capture and capture.failure else None,
        "recording": None,
    }
