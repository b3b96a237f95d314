"""A collector that hangs for ten minutes, beside a daemon that has none."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median
from time import monotonic

import pytest

from lookout.messages import Metrics
from tests.support.collector import Collector, Request
from tests.support.served import Served, street

_SECONDS = 600


@pytest.mark.long
@pytest.mark.timeout(_SECONDS + 300)
def test_a_collector_that_hangs_for_ten_minutes_changes_no_latency(tmp_path: Path) -> None:
    """Compared with a daemon that does the same at the same time."""
    names = ("with", "without")
    for name in names:
        (tmp_path / name).mkdir()
    streets = [street(f"street-{number}", fps=30) for number in range(8)]
    with (
        Collector(Request.hang) as silent,
        Served(tmp_path / "with", sources=streets, otlp={"endpoint": silent.url, "every": 1}) as traced,
        Served(tmp_path / "without", sources=streets) as plain,
        traced.lookout.subscribe("metrics") as one,
        plain.lookout.subscribe("metrics") as other,
    ):
        p99: dict[str, list[int]] = {name: [] for name in names}
        until = monotonic() + _SECONDS
        while monotonic() < until:
            for name, subscriber in zip(names, (one, other)):
                message = subscriber.receive(0.5)
                if isinstance(message, Metrics) and message.latency:
                    p99[name].append(message.latency["total"].p99)
        text = traced.client.get("/metrics").text
        figures = {name: float(value) for name, value in re.findall(r"^(lookout_trace\S+) (\S+)$", text, re.MULTILINE)}
        assert traced.lookout.stop() == plain.lookout.stop() == 0
    assert all(len(rows) > _SECONDS / 2 for rows in p99.values())
    found = {name: median(rows) for name, rows in p99.items()}
    assert found["with"] < 1.5 * found["without"], found
    assert figures["lookout_traces_sent_total"] == 0
    assert figures["lookout_traces_waiting"] == 1000
    assert figures['lookout_traces_dropped_total{cause="queue_full"}'] > 1000
