"""Servers of the files in a folder."""

from __future__ import annotations

from http.server import SimpleHTTPRequestHandler
from pathlib import Path


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


class Chunked(Quiet):
    """Sends a file in chunks, and not how long it is."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        content = Path(self.translate_path(self.path)).read_bytes()
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for start in range(0, len(content), 4096):
            part = content[start : start + 4096]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")
