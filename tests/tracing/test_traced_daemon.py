"""Traces of a running daemon, at a collector and in Prometheus."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from lookout.messages import Detections, Latency
from tests.support import clips
from tests.support.collector import Collector, Request, Span, attributes_of
from tests.support.daemon import DEMO_MODEL, PATIENCE_S, Lookout, receive_until, wait_until
from tests.support.ports import free_port
from tests.support.served import TOKEN, Served, street

OPEN_METRICS = {"Accept": "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"}
_LATE_WHERE_BUSY = {"capture-street-0", "street-0", "lane-0"}  # they may be in the middle of a frame
OF_BATCH = ("wait", "preprocess", "infer", "postprocess")


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as found:
        yield found


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Served]:
    """One of two streets has more frames than its model looks at."""
    folder = tmp_path_factory.mktemp("traced")
    otlp = {"endpoint": collector.url, "every": 4, "slow_ms": 3_600_000}
    streets = [street("street-0"), street("street-1", fps=600)]
    with Served(folder, otlp=otlp, sources=streets, model={"path": str(DEMO_MODEL), "threads": 1}) as served:
        yield served
        assert served.lookout.stop() == 0
        assert "Traceback" not in served.lookout.log()


def _chosen(served: Served, count: int) -> list[Detections]:
    """So many messages of frames that are traced."""
    found: list[Detections] = []

    def seen(message: object) -> bool:
        if isinstance(message, Detections) and message.traceparent is not msgspec.UNSET:
            found.append(message)
        return len(found) >= count

    with served.lookout.subscribe("detections") as subscriber:
        everything = receive_until(subscriber, seen)
    assert any(isinstance(row, Detections) and row.traceparent is msgspec.UNSET for row in everything)
    return found


def _took(span: Span) -> int:
    return int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])


def _figures(served: Served) -> dict[str, float]:
    """Sums of the samples of each name."""
    found: dict[str, float] = {}
    for name, value in re.findall(r"^(\w+)(?:{.*})? (\S+)$", served.client.get("/metrics").text, re.MULTILINE):
        found[name] = found.get(name, 0.0) + float(value)
    return found


def test_a_message_names_its_trace_which_has_its_times(traced: Served, collector: Collector) -> None:
    for message in _chosen(traced, 3):
        form = re.fullmatch(r"00-([0-9a-f]{32})-([0-9a-f]{16})-01", str(message.traceparent))
        assert form
        wait_until(lambda trace=form[1]: trace in collector.traces(), "the trace")  # type: ignore[misc]
        spans = collector.traces()[form[1]]
        frame = spans["frame"]
        assert spans["publish"]["spanId"] == form[2]
        latency = msgspec.structs.asdict(message.latency)
        assert {name: _took(spans[name]) for name in OF_BATCH} == {name: latency[name] for name in OF_BATCH}
        assert _took(frame) == message.latency.total
        own = attributes_of(frame)
        size = own.pop("lookout.batch.size")
        assert size in (1, 2)
        assert own == {
            "lookout.source": message.source, "lookout.seq": message.seq, "lookout.session": message.session,
            "lookout.reason": "sampled", "lookout.device": "cpu", "lookout.model.name": "demo",
            "lookout.model.backend": message.model.backend, "lookout.model.precision": "fp32",
        }  # fmt: skip
        assert "status" not in frame
        order = [spans[name] for name in (*OF_BATCH, "track", "publish")]
        begins = [int(span["startTimeUnixNano"]) for span in order]
        assert begins == sorted(begins)
        assert {span["parentSpanId"] for span in order} == {frame["spanId"]}
        assert attributes_of(spans["infer"])["thread.name"] == "lane-0"
    resource = json.loads(collector.requests[0][2])["resourceSpans"][0]["resource"]
    instance = traced.client.get("/api/v1/daemon").json()["instance"]
    assert attributes_of(resource)["service.instance.id"] == instance


def test_frames_that_are_dropped_have_traces_with_their_cause(traced: Served, collector: Collector) -> None:
    def lost() -> list[Span]:
        return [spans["frame"] for spans in collector.traces().values() if "status" in spans["frame"]]

    wait_until(lost, "a dropped frame's trace")
    frame = lost()[0]
    own = attributes_of(frame)
    cause = own["error.type"]
    assert frame["status"] == {"code": 2, "message": f"dropped: {cause}"}
    assert own["lookout.reason"] == "dropped"
    dropped = f'lookout_frames_dropped_total{{cause="{cause}",source="{own["lookout.source"]}"}} '
    assert float(traced.client.get("/metrics").text.partition(dropped)[2].split()[0]) > 0


def _exemplars(served: Served) -> list[tuple[dict[str, str], Any]]:
    answer = served.client.get("/metrics", headers=OPEN_METRICS)
    assert answer.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    families = text_string_to_metric_families(answer.text)  # type: ignore[no-untyped-call]
    return [(row.labels, row.exemplar) for family in families for row in family.samples if row.exemplar]


def test_buckets_name_traces_that_the_collector_has(traced: Served, collector: Collector) -> None:
    wait_until(lambda: _exemplars(traced), "an exemplar")
    rows, traces = _exemplars(traced), collector.traces()
    for labels, exemplar in rows:
        spans = traces[exemplar.labels["trace_id"]]
        name = "frame" if labels["stage"] == "total" else labels["stage"]
        assert exemplar.value == pytest.approx(_took(spans[name]) / 1e9 if name in spans else 0.0, abs=1e-8)
        assert exemplar.value <= float(labels["le"])
    assert {labels["stage"] for labels, _ in rows} == {*Latency.__struct_fields__}
    plain = traced.client.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain")
    assert "trace_id" not in plain.text


@pytest.mark.needs("promtool")
def test_the_figures_of_traces_are_prometheus_s(traced: Served, collector: Collector) -> None:
    wait_until(lambda: _figures(traced)["lookout_traces_sent_total"], "a trace")
    text = traced.client.get("/metrics").text
    done = subprocess.run(["promtool", "check", "metrics"], check=False, input=text, text=True, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for cause in ("queue_full", "unreachable", "refused", "shutdown"):
        assert f'\nlookout_traces_dropped_total{{cause="{cause}"}} 0.0\n' in text
    sent = _figures(traced)["lookout_traces_sent_total"]
    assert sent <= len(collector.traces())


@pytest.mark.slow
@pytest.mark.needs("promtool")
def test_prometheus_keeps_exemplars(traced: Served, collector: Collector, tmp_path: Path) -> None:
    port = free_port()
    config = tmp_path / "prometheus.yml"
    config.write_text(yaml.safe_dump({
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "lookout", "authorization": {"credentials": TOKEN},
                            "static_configs": [{"targets": [f"127.0.0.1:{traced.port}"]}]}],
    }))  # fmt: skip
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}",
               f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
               "--enable-feature=exemplar-storage"]  # fmt: skip
    found: list[Any] = []

    def kept() -> bool:
        query = {"query": 'lookout_stage_seconds_bucket{stage="total"}', "start": "0", "end": "9999999999"}
        with suppress(httpx.HTTPError, json.JSONDecodeError):
            answer = httpx.get(f"http://127.0.0.1:{port}/api/v1/query_exemplars", params=query, timeout=PATIENCE_S)
            found[:] = [one for row in answer.json().get("data", []) for one in row["exemplars"]]
        return bool(found)

    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as prometheus:
        try:
            wait_until(kept, "an exemplar in Prometheus")
        finally:
            prometheus.terminate()
    assert {one["labels"]["trace_id"] for one in found} <= collector.traces().keys()


def _left_behind(log: str) -> set[str]:
    """Names of threads, sources and libraries; the exporter's time is taken from those that end after it."""
    rows = [json.loads(row) for row in log.splitlines() if "left behind" in row]
    return {name for row in rows for name in row.get("threads", [row.get("source") or row.get("what")])}


def test_a_collector_that_hangs_changes_nothing_else(tmp_path: Path) -> None:
    """Frames go on, and a stop is a stop."""
    with Collector(Request.hang) as silent, Served(tmp_path, otlp={"every": 1, "endpoint": silent.url}) as served:
        wait_until(lambda: silent.requests, "a request")
        before = _figures(served)["lookout_frames_published_total"]
        wait_until(lambda: _figures(served)["lookout_frames_published_total"] > before + 40, "frames")
        figures = _figures(served)
        assert figures["lookout_traces_sent_total"] == 0
        assert 10 < figures["lookout_traces_waiting"] <= 1000
        assert served.client.get("/ready").json() == {"ok": True, "reasons": []}
        assert served.lookout.stop() == 0
        log = served.lookout.log()
    assert _left_behind(log) <= _LATE_WHERE_BUSY
    (line,) = [json.loads(row) for row in log.splitlines() if "traces were lost" in row]
    assert line["dropped"] > 10
    assert "Traceback" not in log


@pytest.mark.needs("ffmpeg")
def test_frames_of_a_capture_process_have_times_of_one_clock(tmp_path: Path) -> None:
    clip = tmp_path / "clip.mp4"
    source = ("-f", "lavfi", "-i", "testsrc2=size=320x192:rate=30:duration=1")
    clips.ffmpeg(*source, "-c:v", "libx264", "-pix_fmt", "yuv420p", clip)
    with Collector() as collector:
        config: dict[str, object] = {
            "sources": [{"id": "clip", "type": "av", "url": str(clip), "loop": True}], "capture_processes": 1,
            "model": {"path": str(DEMO_MODEL), "backend": "fake"}, "board": {"mode": "lossless"},
            "otlp": {"endpoint": collector.url, "every": 1},
        }  # fmt: skip
        with Lookout(tmp_path, config):
            wait_until(lambda: len(collector.traces()) >= 5, "traces")
            traces = collector.traces()
    for spans in traces.values():
        frame = spans["frame"]
        assert spans["decode"]["endTimeUnixNano"] == frame["startTimeUnixNano"]
        assert _took(spans["decode"]) > 0
        assert 0 <= _took(spans["wait"]) <= _took(frame)
