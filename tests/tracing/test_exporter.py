"""What a collector can do: every trace is sent, waits, or is counted, and nobody waits for it."""

from __future__ import annotations

import random
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog

from daemon.tracing import exporter as exporting
from daemon.tracing.exporter import MAX_WAITING, Exporter, ExporterFigures
from daemon.tracing.record import Record, SentFrame
from tests.support.collector import Collector, Request, Respond, attributes_of, take
from tests.support.daemon import PATIENCE_S, wait_until
from tests.support.ports import free_port
from tests.tracing.parts import QuickClock, exporter
from tests.tracing.records import records


class Running:
    """An exporter that works, with a clock that waits little.

    Attributes:
        told: frames whose traces are sent.
    """

    def __init__(self, url: str, **more: object) -> None:
        self.clock, self.told = QuickClock(), list[SentFrame]()
        self.exporter: Exporter = exporter(url, self.told.extend, self.clock, **more)
        self.put = 0

    def give(self, made: Sequence[Record]) -> None:
        for record in made:
            self.exporter.put(record)
        self.put += len(made)

    @property
    def figures(self) -> ExporterFigures:
        found = self.exporter.figures(limit=0)
        assert found.sent + found.waiting + sum(found.dropped.values()) == self.put
        return found

    def until(self, condition: Callable[[ExporterFigures], bool]) -> ExporterFigures:
        wait_until(lambda: condition(self.figures), "the account")
        return self.figures

    @property
    def dropped(self) -> dict[str, int]:
        return {cause: count for cause, count in self.figures.dropped.items() if count}


@contextmanager
def told() -> Iterator[list[structlog.typing.EventDict]]:
    """What is logged."""
    structlog.reset_defaults()  # tests are quiet otherwise
    with structlog.testing.capture_logs() as logs:
        yield logs


@contextmanager
def running(url: str, made: Sequence[Record] = (), **more: object) -> Iterator[Running]:
    found = Running(url, **more)
    found.give(made)
    found.exporter.start()
    try:
        yield found
    finally:
        assert not found.exporter.stop(PATIENCE_S)
        assert found.figures.waiting == 0


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as found:
        yield found


def test_traces_arrive(collector: Collector) -> None:
    made = records(250, 1)
    with running(collector.url, made) as it:
        it.until(lambda figures: figures.sent == 250)
        assert it.told == [record for record in made if isinstance(record, SentFrame)]
        assert it.figures.dropped["queue_full"] == 0
    assert {*collector.traces()} == {record.ids.trace for record in made}
    path, headers, body = collector.requests[0]
    assert (path, headers["Content-Type"], headers["Content-Encoding"]) == ("/v1/traces", "application/json", "gzip")
    assert b'"service.instance.id"' in body
    frames = [spans["frame"] for spans in collector.traces().values()]
    assert [attributes_of(frame)["lookout.seq"] for frame in frames] == [*range(250)]


def in_turn(*answers: Respond) -> Respond:
    """The first answers of a collector, and the last one from then on."""
    left = [*answers]

    def respond(request: Request) -> None:
        chosen = left.pop(0) if len(left) > 1 else left[0]
        chosen(request)

    return respond


def says(status: int, content: bytes = b"", **headers: str) -> Respond:
    return lambda request: request.answer(status, content, **headers)


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [
        ("7", 7, 7),
        ("100000", 600, 600),
        ("Fri, 31 Dec 2100 23:59:59 GMT", 0.8, 1.2),
        ("-1", 0.8, 1.2),
        ("0", 1, 1),
        ("٣", 0.8, 1.2),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_a_collector_that_is_busy_is_asked_again_when_it_says(
    collector: Collector, status: int, asked: str, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "_LAST_S", PATIENCE_S)  # a busy machine
    collector.respond = in_turn(says(status, Retry_After=asked.encode().decode("latin-1")), take)
    with running(collector.url, records(5, 1)) as it:
        wait_until(lambda: len(it.clock.waits) > 1, "the pause")
        assert least <= it.clock.waits[1] <= most
        if least < 10:
            it.until(lambda figures: figures.sent == 5)
    assert it.dropped == {}  # a stop sends the rest


@pytest.mark.parametrize("status", [301, 307, 400, 401, 404, 413, 500, 501])
def test_what_a_collector_refuses_is_not_sent_again(collector: Collector, status: int) -> None:
    """Nor elsewhere."""
    with Collector() as other:
        collector.respond = in_turn(says(status, Location=other.url + "/v1/traces"), take)
        with running(collector.url, records(5, 1)) as it:
            it.until(lambda figures: figures.dropped["refused"] == 5)
            it.give(records(7, 2))
            it.until(lambda figures: figures.sent == 7)
        assert other.requests == []
    assert len(collector.requests) == 2
    assert it.dropped == {"refused": 5}


@pytest.mark.parametrize("count", ["3", '"3"'])
def test_spans_that_are_not_taken_are_counted(collector: Collector, count: str) -> None:
    collector.respond = says(200, b'{"partialSuccess": {"rejectedSpans": %b, "errorMessage": "no"}}' % count.encode())
    with running(collector.url, records(5, 1)) as it:
        found = it.until(lambda figures: figures.sent == 5)
        assert (found.rejected_spans, it.told) == (3, [])  # nobody knows which


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"\xff\x00",
        b"[1]",
        b'{"partialSuccess": null}',
        b'{"partialSuccess": {"rejectedSpans": "x"}}',
        b'{"partialSuccess": {"rejectedSpans": -5}}',
    ],
)
def test_an_answer_that_says_nothing_is_a_success(collector: Collector, content: bytes) -> None:
    collector.respond = says(200, content)
    with running(collector.url, records(5, 1)) as it:
        assert it.until(lambda figures: figures.sent == 5).rejected_spans == 0


def _close(request: Request) -> None:
    request.close_connection = True


def _endless(request: Request) -> None:
    request.send_response(200)
    request.end_headers()
    while not request.collector.ending.is_set():
        request.wfile.write(bytes(1 << 16))


def test_an_answer_without_an_end_counts_by_its_status(collector: Collector) -> None:
    collector.respond = _endless
    with running(collector.url, records(5, 1)) as it:
        assert it.until(lambda figures: figures.sent == 5).rejected_spans == 0


def _nonsense(request: Request) -> None:
    request.wfile.write(b"\0" * 70_000)
    request.close_connection = True


@pytest.mark.parametrize("respond", [_close, _nonsense, says(502)])
def test_a_collector_that_never_works_gets_each_trace_eight_times(collector: Collector, respond: Respond) -> None:
    """With longer and longer pauses; and later ones, when it works."""
    collector.respond = respond
    with told() as logs, running(collector.url, records(5, 1)) as it:
        it.until(lambda figures: figures.dropped["unreachable"] == 5)
        collector.respond = take
        it.give(records(5, 2))
        it.until(lambda figures: figures.sent == 5)
    assert it.dropped == {"unreachable": 5}
    pauses = [pause for pause in it.clock.waits if pause > 1.2]
    assert [round(pause / 2**number) for number, pause in enumerate(pauses[:5], 1)] == [1] * 5
    assert all(45 < pause < 75 for pause in pauses[5:])
    assert len(pauses) == 7
    trouble = [row for row in logs if row["event"] == "traces do not reach the collector"]
    assert len(trouble) == 1  # a minute
    assert [row["event"] for row in logs if row["log_level"] == "info"][-1] == "traces are sent again"


def test_nobody_there() -> None:
    with told() as logs, running(f"http://127.0.0.1:{free_port()}", records(5, 1)) as it:
        it.until(lambda figures: figures.dropped["unreachable"] == 5)
    assert any(row.get("reason") == "Connection refused" for row in logs)


def test_the_oldest_go_when_too_many_wait(collector: Collector) -> None:
    """While a request hangs, with the traces that it has."""
    collector.respond = Request.hang
    made = records(3 * MAX_WAITING, 1)
    with running(collector.url, made[:10]) as it:
        wait_until(lambda: collector.requests, "the request")
        it.give(made[10:])
        assert it.figures.waiting == MAX_WAITING
        assert it.dropped == {"queue_full": 2 * MAX_WAITING}
        assert it.exporter.waiting == made[:10] + made[2 * MAX_WAITING + 10 :]
    assert it.dropped == {"queue_full": 2 * MAX_WAITING, "shutdown": MAX_WAITING}


def test_a_stop_sends_what_waits(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "_LAST_S", PATIENCE_S)  # a busy machine
    it = Running(collector.url)
    it.exporter.start()
    it.give(records(20, 1))
    assert not it.exporter.stop(PATIENCE_S)
    assert len(collector.traces()) == it.figures.sent == 20


def test_a_handshake_that_never_comes_holds_nobody() -> None:
    """It is cut off."""
    with socket.create_server(("127.0.0.1", 0), backlog=1) as deaf:
        it = Running(f"https://127.0.0.1:{deaf.getsockname()[1]}")
        it.give(records(5, 1))
        it.exporter.start()
        with deaf.accept()[0] as end:
            end.recv(1)  # the handshake has begun
            assert it.exporter.stop(0.05) == ()
        it.exporter.join(PATIENCE_S)
        assert it.dropped == {"shutdown": 5}


def test_random_troubles_lose_nothing_unseen(collector: Collector) -> None:
    chance = random.Random(5)
    answers = [take, take, take, _close, _nonsense, says(503), says(429, Retry_After="2"), says(400), says(302)]

    def respond(request: Request) -> None:
        chosen = chance.choice(answers)
        chosen(request)

    collector.respond = respond
    with running(collector.url) as it:
        for seed in range(40):
            it.give(records(chance.randrange(90), seed))
            it.until(lambda figures: figures.waiting < chance.randrange(1, 500))
        it.until(lambda figures: figures.waiting == 0)
        assert it.figures.sent > 0
        assert len(collector.traces()) == it.figures.sent
    assert it.dropped.keys() <= {"refused", "unreachable"}


@pytest.mark.needs("openssl")
def test_a_certificate_that_nobody_knows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "collector.pem"
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=collector", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", "req", "-x509", *key, *names, "-keyout", file, "-out", tmp_path / "own.pem"],
                   check=True, capture_output=True)  # fmt: skip
    file.write_bytes(file.read_bytes() + (tmp_path / "own.pem").read_bytes())
    with Collector(certificate=file) as collector:
        with told() as logs, running(collector.url, records(5, 1)) as it:
            it.until(lambda figures: figures.dropped["unreachable"] == 5)
        assert any("self-signed certificate" in row.get("reason", "") for row in logs)
        assert collector.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "own.pem"))
        with running(collector.url, records(5, 1)) as it:
            it.until(lambda figures: figures.sent == 5)


def test_headers_are_those_of_the_file_now(collector: Collector, tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("# of the collector\nAuthorization: Bearer first\n\nX-Scope-OrgID: 7\n")
    file.chmod(0o640)
    with told() as logs, running(collector.url, records(5, 1), headers_file=file) as it:
        it.until(lambda figures: figures.sent == 5)
        file.write_text("Authorization: Bearer second")
        it.give(records(5, 2))
        it.until(lambda figures: figures.sent == 10)
        file.write_text("Authorization: Bearer third\nContent-Length: 7\n")
        it.give(records(5, 3))
        it.until(lambda figures: figures.dropped["unreachable"] == 5)
    _, first, _ = collector.requests[0]
    assert (first["Authorization"], first["X-Scope-OrgID"]) == ("Bearer first", "7")
    assert [headers["Authorization"] for _, headers, _ in collector.requests] == ["Bearer first", "Bearer second"]
    assert any(row.get("reason", "").startswith("line 2 is no header") for row in logs)
    assert "third" not in str(logs)
