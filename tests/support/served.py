"""A daemon with the HTTP API, and a client with the token."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.support.daemon import DEMO_MODEL, PATIENCE_S, Lookout, has_seen, receive_until, wait_until
from tests.support.ports import free_port

TOKEN = "a-token-that-is-long-enough"  # noqa: S105 - of these tests
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def street(name: str, **more: object) -> dict[str, object]:
    """A synthetic source."""
    return {"id": name, "type": "synthetic", "width": 160, "height": 96, "fps": 10, **more}


class Served:
    """A daemon with two streets by default.

    Args:
        http: added to port and token.
        config: the rest of the configuration.
    """

    def __init__(self, folder: Path, http: dict[str, object] | None = None, **config: object) -> None:
        self.port = free_port()
        whole = {
            "sources": [street("street-0"), street("street-1")],
            "model": {"path": str(DEMO_MODEL), "backend": "fake"},
            "http": {"enabled": True, "port": self.port, "token": TOKEN, **(http or {})},
            "monitor": {"interval_s": 0.5, "stall_after_s": 60},  # a busy machine is not a stalled camera
            **config,
        }
        self.lookout = Lookout(folder, whole)
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = self.client_with(TOKEN)
        with self.lookout.subscribe() as subscriber:
            receive_until(subscriber, has_seen(1, "street-0", "street-1"))
        wait_until(lambda: self.client.get("/startup").is_success, "it is ready")  # frames may come before

    def client_with(self, token: str | None) -> httpx.Client:
        """A client with this token, or with none."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S)

    def close(self) -> None:
        self.client.close()
        self.lookout.close()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
