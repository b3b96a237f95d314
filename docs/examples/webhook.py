"""Receives webhooks of Lookout, and believes those that are signed. It needs nothing beside Python.

    LOOKOUT_SECRET=whsec_... python webhook.py 8000

The package standardwebhooks of PyPI does the same check: Webhook(secret).verify(body, headers).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

TOLERANCE_S = 300  # a request that is older may be a copy
SEEN: set[str] = set()  # ids; a service keeps them in its database


def is_signed(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """Whether one of the signatures is of this secret, and the request is of now. Names of headers in lower case."""
    id, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not at.isdigit() or abs(time.time() - int(at)) > TOLERANCE_S:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    expected = hmac.digest(key, f"{id}.{at}.".encode() + body, hashlib.sha256)
    wanted = f"v1,{base64.b64encode(expected).decode()}"
    given = headers.get("webhook-signature", "").split(" ")
    return any(hmac.compare_digest(wanted.encode(), text.encode()) for text in given)


class Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        status = 204 if is_signed(os.environ["LOOKOUT_SECRET"], headers, body) else 400
        self.send_response(status)
        self.end_headers()
        if status == 204 and headers["webhook-id"] not in SEEN:  # the same one may come again
            SEEN.add(headers["webhook-id"])
            message = json.loads(body)
            print(message["schema"], message.get("source"), message.get("label"), flush=True)


if __name__ == "__main__":
    HTTPServer(("", int(sys.argv[1])), Hook).serve_forever()
