"""A daemon whose model is on a real Triton server, which is killed and started again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from daemon.cli import invoke
from daemon.pipeline.drop_causes import CAUSES
from lookout.messages import Message, Metrics
from tests.support.daemon import PATIENCE_S, Lookout, has_seen, receive_until, wait_until
from tests.support.ports import free_port
from tests.support.served import HEADERS, TOKEN, street
from tests.support.tritonserver import PIXELS, TritonServer

pytestmark = [pytest.mark.needs("triton"), pytest.mark.slow(2)]


def test_a_server_that_dies_is_a_state_of_the_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The daemon waits for it at the start. When it dies sources stay up, frames are counted, /ready says why, and the
    accounts add up when it is back."""
    port = free_port()
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=HEADERS, timeout=PATIENCE_S)
    with closing(TritonServer(tmp_path, starts=False, demo=PIXELS)) as server, client:
        config: dict[str, object] = {
            "model": {"path": server.address("demo"), "backend": "triton"},
            "lanes": 2,
            "sources": [street("one"), street("two", fps=100)],
            "http": {"enabled": True, "port": port, "token": TOKEN},
            "monitor": {"interval_s": 0.5, "stall_after_s": 60},
        }
        with Lookout(tmp_path, config) as lookout, lookout.subscribe() as subscriber:
            wait_until(lambda: "waiting for the server of the model" in lookout.log(), "it waits")
            server.start()
            receive_until(subscriber, has_seen(3, "one", "two"))
            wait_until(lambda: client.get("/ready").is_success, "it is ready")
            assert "lookout-triton" in server.regions()
            server.kill()
            wait_until(lambda: client.get("/ready").status_code == 503, "/ready says that it is away")
            assert f"model demo on 127.0.0.1:{server.port}" in client.get("/ready").text
            assert client.get("/live").is_success
            receive_until(subscriber, _has_dropped("one", "two"))
            assert [row["state"] for row in client.get("/api/v1/sources").json()] == ["up", "up"]
            server.start()
            wait_until(lambda: client.get("/ready").is_success, "it is back")
            receive_until(subscriber, has_seen(3, "one", "two"))
            *_, metrics = receive_until(subscriber, lambda row: isinstance(row, Metrics))
            assert isinstance(metrics, Metrics)
            for row in metrics.sources.values():
                dropped = sum(getattr(row.dropped, cause) for cause in CAUSES)
                assert row.captured == row.published + row.in_flight + dropped
            assert lookout.stop() == 0
        assert server.regions() == "[]"
        _check(lookout.config, capsys)


def _check(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`lookout check` tells of the transport, the bytes and the rate."""
    assert invoke(["check", "-c", str(config)]) == 0
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "shared memory, UINT8, 307200 bytes a picture there and 58800 back" in words
    assert "pictures of 1280x720 a second, in batches of 8 from 2 lanes" in words


def _has_dropped(*sources: str) -> Callable[[Message], bool]:
    def seen(message: Message) -> bool:
        return isinstance(message, Metrics) and all(
            message.sources[source].dropped.detector_unavailable > 0 for source in sources
        )

    return seen
