"""The files of the page: read once, compressed once, and answered with an ETag."""

from __future__ import annotations

import gzip
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).parent / "static"
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}
_COMPRESSED = (".html", ".js", ".css", ".json", ".webmanifest", ".svg", ".txt")
_NAME = re.compile(r"(?:[\w-]+/)*[\w-][\w.-]*", re.ASCII)
_MAX_BYTES = 4 << 20


@dataclass(frozen=True)
class _File:
    changed_ns: int
    content: bytes
    compressed: bytes | None
    tag: str
    kind: str


class StaticFiles:
    """Answers with files of one folder."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._files: dict[str, _File] = {}

    def answer(self, request: Request, name: str) -> Response:
        """A file, or 304 if the browser has it.

        Raises:
            HTTPException: 404.
        """
        found = self._file(name)
        headers = {"ETag": found.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if found.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        content = found.content
        if found.compressed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            content, headers["Content-Encoding"] = found.compressed, "gzip"
        return Response(content, media_type=found.kind, headers=headers)

    def _file(self, name: str) -> _File:
        path = self._folder / name
        if not _NAME.fullmatch(name) or path.suffix not in _KINDS:
            raise HTTPException(404, "no such file")
        try:
            status = path.stat()
            found = self._files.get(name)
            if found is None or found.changed_ns != status.st_mtime_ns:
                if not path.is_file() or status.st_size > _MAX_BYTES:
                    raise HTTPException(404, "no such file")
                found = self._files[name] = _read(path, status.st_mtime_ns)
        except OSError as error:
            raise HTTPException(404, "no such file") from error
        return found


def _read(path: Path, changed_ns: int) -> _File:
    content = path.read_bytes()
    compressed = gzip.compress(content, mtime=0) if path.suffix in _COMPRESSED else None
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return _File(changed_ns, content, compressed, tag, _KINDS[path.suffix])
