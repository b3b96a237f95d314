"""A daemon whose model is on a real Triton server, which is killed and started again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from daemon.messages import Message, Metrics
from daemon.pipeline.ledger import CAUSES
from tests.support.daemon import PATIENCE_S, ROOT, Lookout, has_seen, receive_until, wait_until
from tests.support.served import Served, street
from tests.support.tritonserver import PIXELS, TritonServer

pytestmark = [pytest.mark.needs("triton"), pytest.mark.slow(2)]


def test_a_server_that_dies_is_a_state_of_the_daemon(tmp_path: Path) -> None:
    """Sources stay up, frames are counted, /ready says why; nothing is lost when it is back. Then another model takes
    its name, and the daemon ends, because only a new process can use that."""
    with closing(TritonServer(tmp_path, demo=PIXELS)) as server:
        model = {"path": server.address("demo"), "backend": "triton"}
        with Served(tmp_path, model=model, lanes=2) as served, served.lookout.subscribe() as subscriber:
            assert served.client.get("/ready").is_success
            assert "lookout-triton" in server.regions()
            server.kill()
            wait_until(lambda: served.client.get("/ready").status_code == 503, "/ready says that it is away")
            assert f"model demo on 127.0.0.1:{server.port}" in served.client.get("/ready").text
            assert served.client.get("/live").is_success
            receive_until(subscriber, _has_dropped("street-0", "street-1"))
            assert [row["state"] for row in served.client.get("/api/v1/sources").json()] == ["up", "up"]
            server.start()
            wait_until(lambda: served.client.get("/ready").is_success, "it is back")
            receive_until(subscriber, has_seen(3, "street-0", "street-1"))
            *_, metrics = receive_until(subscriber, lambda row: isinstance(row, Metrics))
            assert isinstance(metrics, Metrics)
            for row in metrics.sources.values():
                dropped = sum(getattr(row.dropped, cause) for cause in CAUSES)
                assert row.captured == row.published + row.in_flight + dropped
            server.kill()
            config = tmp_path / "models" / "demo" / "config.pbtxt"
            config.write_text(config.read_text().replace("'bus'", "'lorry'"))
            server.start()
            assert served.lookout.process.wait(PATIENCE_S) == 3
            assert "is another one now" in served.lookout.log()


def test_check_tells_of_the_transport_and_run_waits_for_the_server(tmp_path: Path) -> None:
    with closing(TritonServer(tmp_path, demo=PIXELS)) as server:
        model = {"path": server.address("demo"), "backend": "triton", "transport": "http"}
        config: dict[str, object] = {"model": model, "sources": [street("one", frames=30)]}
        checked = Lookout(tmp_path, config)
        checked.close()
        command = [sys.executable, "-m", "daemon", "check", "-c", str(checked.config)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stdout + done.stderr
        words = " ".join(done.stdout.replace("│", " ").split())
        assert "HTTP, UINT8, 307200 bytes a picture there and 58800 back" in words
        assert "pictures of 1280x720 a second, in batches of 8 from 1 lanes" in words
        server.kill()
        with Lookout(tmp_path, config) as lookout:
            wait_until(lambda: "waiting for the server of the model" in lookout.log(), "it waits")
            server.start()
            assert lookout.process.wait(PATIENCE_S) == 0
            assert "every recording has ended" in lookout.log()


def _has_dropped(*sources: str) -> Callable[[Message], bool]:
    def seen(message: Message) -> bool:
        return isinstance(message, Metrics) and all(
            message.sources[source].dropped.detector_unavailable > 0 for source in sources
        )

    return seen
