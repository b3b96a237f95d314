"""What attaches tracing to a daemon, and when."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from daemon.clock import SystemClock
from daemon.commands.obstacles import obstacles
from daemon.config.load import parse
from daemon.lifecycle import Lifecycle
from daemon.pipeline.core import Core
from daemon.pipeline.ledger import Ledger
from daemon.pipeline.outbox import Outbox
from daemon.system.opener import Opener
from daemon.system.stop_token import StopToken
from daemon.system.time_limits import Limits
from daemon.tracing.kit import open_tracing
from tests.support.collector import Collector, attributes_of
from tests.support.daemon import ROOT, wait_until
from tests.support.ports import free_port
from tests.support.runtime import runtime_of
from tests.tracing.parts import result

CONFIG = "model: {path: m.onnx}\nsources: [{id: s, type: synthetic}]\n"


def _core(more: str = "") -> Core:
    clock, limits, ledger = SystemClock(), Limits(), Ledger(["s"])
    life = Lifecycle(clock, limits)
    opener = Opener(StopToken(), 1.0, limits, clock, life.leave_behind)
    outbox = Outbox(1, ledger, lossless=False)
    return Core(parse(CONFIG + more), "run-1", ledger, outbox, life, opener, runtime_of(clock))


def test_the_environment_s_endpoint_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    with Collector() as collector:
        for name, value in (
            ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url),
            ("OTEL_SERVICE_NAME", "hall"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20hunter2"),
        ):
            monkeypatch.setenv(name, value)
        core, told = _core("otlp: {every: 1}"), list[Any]()
        tracing = open_tracing(core, told.extend)
        assert tracing
        core.life.start(StopToken())
        try:
            now_ns = SystemClock().monotonic_ns()
            traceparent = tracing.choose(*result(0, now_ns, 1000, "s"))
            wait_until(lambda: told, "the trace")
        finally:
            assert core.life.stop() == []
    assert {*collector.traces()} == {str(traceparent).split("-")[1]}
    _, headers, body = collector.requests[0]
    assert headers["Authorization"] == "Bearer hunter2"
    assert attributes_of(json.loads(body)["resourceSpans"][0]["resource"])["service.name"] == "hall"


def test_the_environment_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert open_tracing(_core("otlp: {endpoint: 'http://127.0.0.1:4318'}"), None) is None


@pytest.mark.parametrize(("status", "reason"), [(200, ""), (202, ""), (401, "it answers 401"), (302, "it answers 302")])
def test_a_check_asks_the_collector(status: int, reason: str) -> None:
    with Collector(lambda request: request.answer(status)) as collector:
        found = [*obstacles(parse(f"{CONFIG}otlp: {{endpoint: '{collector.url}'}}"), ports=False)]
        assert len(collector.requests) == 1
        assert collector.traces() == {}
    assert found == ([f"otlp: {collector.url} takes no traces: {reason}; `run` works without"] if reason else [])


def test_a_check_finds_nobody_and_no_headers(tmp_path: Path) -> None:
    otlp = f"{CONFIG}otlp: {{endpoint: 'http://127.0.0.1:{free_port()}'"
    (away,) = obstacles(parse(f"{otlp}}}"), ports=False)
    assert away.endswith(" takes no traces: Connection refused; `run` works without")
    (unread,) = obstacles(parse(f"{otlp}, headers_file: {tmp_path / 'none'}}}"), ports=False)
    assert unread.startswith("otlp.headers_file: ")


def test_without_an_endpoint_nothing_is_loaded() -> None:
    code = (
        "import sys; from types import SimpleNamespace; from daemon.config.load import parse\n"
        "from daemon.tracing.kit import open_tracing\n"
        f"print(open_tracing(SimpleNamespace(config=parse({CONFIG!r})), None))\n"
        "print(*(name for name in sys.modules if name.startswith('daemon.tracing.')))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, env={})
    assert done.stdout.split() == ["None", "daemon.tracing.kit"]
