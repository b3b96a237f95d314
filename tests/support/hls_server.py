"""An HLS server in this process, which answers what a test says, and notes what it was asked."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support import clips


@dataclass
class Request:
    path: str
    headers: Mapping[str, str]

    @property
    def authorization(self) -> str:
        return self.headers.get("authorization", "")

    @property
    def cookie(self) -> str:
        return self.headers.get("cookie", "")


@dataclass
class Answer:
    """Attributes:
    body: bytes; a text is a playlist.
    """

    body: bytes | str = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class HlsServer:
    """Serves until it is closed.

    Args:
        answer: gives the answer to a request; called by the server's threads, one at a time.
    """

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self.requests: list[Request] = []
        lock, requests = threading.Lock(), self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                request = Request(self.path, {key.lower(): value for key, value in self.headers.items()})
                with lock:
                    requests.append(request)
                    found = answer(request)
                body = found.body.encode() if isinstance(found.body, str) else found.body
                first, last = _range(request, len(body))
                self.send_response(206 if found.status == 200 and len(body) > last - first else found.status)
                kind = "application/vnd.apple.mpegurl" if isinstance(found.body, str) else "video/mp2t"
                spans = {"Content-Range": f"bytes {first}-{last - 1}/{len(body)}"} if last - first < len(body) else {}
                own = {"Content-Type": kind, "Content-Length": str(last - first), **spans}
                for key, value in (own | dict(found.headers)).items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(body[first:last])

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> HlsServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def url(self, path: str, credentials: str = "") -> str:
        return f"http://{credentials}{'@' if credentials else ''}127.0.0.1:{self._server.server_port}/{path}"

    def paths(self) -> list[str]:
        return [request.path for request in self.requests]


SEGMENT_S = 0.4  # seconds; FFmpeg asks for a list again after so long


def segments(folder: Path, count: int, key: Path | None = None) -> list[bytes]:
    """MPEG-TS segments of four pictures each, whose times go on.

    Args:
        key: ffmpeg's file that says how to encipher them.
    """
    folder.mkdir(exist_ok=True)
    source = f"testsrc2=size=160x96:rate=10:duration={count * SEGMENT_S}"
    x264 = ["-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-pix_fmt", "yuv420p"]
    form = ["-g", "4", "-f", "hls", "-hls_time", str(SEGMENT_S), "-hls_list_size", "0"]
    secret: list[str | Path] = ["-hls_key_info_file", key] if key else []
    names: list[str | Path] = ["-hls_segment_filename", folder / "%d.ts", folder / "list.m3u8"]
    clips.ffmpeg("-f", "lavfi", "-i", source, *x264, *form, *secret, *names)
    paths = sorted(folder.glob("*.ts"), key=lambda path: int(path.stem))
    return [path.read_bytes() for path in paths]


def playlist(*lines: str, first: int = 0, complete: bool = False) -> str:
    """A media playlist; a line that is no tag is a segment."""
    rows = [row for line in lines for row in ([line] if line.startswith("#") else [f"#EXTINF:{SEGMENT_S},", line])]
    head = ["#EXTM3U", "#EXT-X-VERSION:4", "#EXT-X-TARGETDURATION:1", f"#EXT-X-MEDIA-SEQUENCE:{first}"]
    return "\n".join([*head, *rows, *(["#EXT-X-ENDLIST"] if complete else [])]) + "\n"


def _range(request: Request, size: int) -> tuple[int, int]:
    found = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
    if found is None:
        return 0, size
    return int(found[1]), min(size, int(found[2]) + 1) if found[2] else size
