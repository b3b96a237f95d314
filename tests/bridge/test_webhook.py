"""Webhooks: signed as Standard Webhooks has it, and what each status does to a record."""

from __future__ import annotations

import base64
import json
import logging
import random
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from standardwebhooks import Webhook, WebhookVerificationError

from daemon.bridge.port import AwayError, Connection, GoneError
from daemon.bridge.records import Delivery, Picture
from daemon.bridge.targets.opening import open_target
from daemon.config.push_checks import key_of
from daemon.config.targets import WebhookTarget
from daemon.errors import ConfigError
from daemon.redact import Secret
from tests.support.clock import ManualClock
from tests.support.pushes import HERE, JPEG, Asked, PushServer, Reply, context, event_record

OLD = "whsec_" + base64.b64encode(b"o" * 24).decode()
NEW = base64.b64encode(b"n" * 32).decode()  # without its prefix


@pytest.fixture
def server() -> Iterator[PushServer]:
    with PushServer() as found:
        yield found


def target(server: PushServer, **more: Any) -> WebhookTarget:
    settings = {"allow": HERE, "secrets": [Secret(NEW), Secret(OLD)], **more}
    return WebhookTarget(name="hook", url=Secret(server.url("/s3cret-path?key=s3cret")), **settings)


def connected(server: PushServer, clock: ManualClock | None = None, **more: Any) -> Connection:
    return open_target(target(server, **more), context(clock))


def delivered(connection: Connection, *deliveries: Delivery) -> list[str | None]:
    try:
        return list(connection.deliver(deliveries or (Delivery(event_record()),)))
    finally:
        connection.close()


def verify(secret: str, asked: Asked) -> Any:
    return Webhook(secret).verify(asked.body, dict(asked.headers))


def test_each_secret_verifies_the_request(server: PushServer) -> None:
    record = event_record()
    assert delivered(connected(server), Delivery(record)) == [None]
    (asked,) = server.asked
    for secret in (OLD, NEW):
        assert verify(secret, asked) == json.loads(record.body)
    with pytest.raises(WebhookVerificationError):
        verify(base64.b64encode(b"x" * 24).decode(), asked)
    assert (asked.method, asked.path) == ("POST", "/s3cret-path?key=s3cret")
    assert asked.headers["webhook-id"] == record.id
    assert asked.headers["content-type"] == "application/json"
    assert asked.body == record.body


def test_a_request_that_was_changed_verifies_with_no_secret(server: PushServer) -> None:
    """500 changes of a byte of the body, of the id, of the time, of the signatures."""
    delivered(connected(server))
    (asked,) = server.asked
    chosen, tried = random.Random(7), 0
    while tried < 500:
        headers, body = dict(asked.headers), bytearray(asked.body)
        where = chosen.choice(["body", "webhook-id", "webhook-timestamp", "webhook-signature"])
        if where == "body":
            body[chosen.randrange(len(body))] ^= 1 << chosen.randrange(7)
        elif where == "webhook-signature":
            # The last sign of base64 holds bits that mean nothing.
            parts = [list(part) for part in headers[where].split(" ")]
            for part in parts:
                place = chosen.randrange(3, len(part) - 2)
                part[place] = "A" if part[place] != "A" else "B"
            headers[where] = " ".join("".join(part) for part in parts)
        else:
            place = chosen.randrange(len(headers[where]))
            sign = "1" if headers[where][place] != "1" else "2"
            headers[where] = headers[where][:place] + sign + headers[where][place + 1 :]
        tried += 1
        for secret in (OLD, NEW):
            with pytest.raises(WebhookVerificationError):
                Webhook(secret).verify(bytes(body).decode("latin-1"), headers)


def test_secrets_of_a_file_are_read_for_each_request(server: PushServer, tmp_path: Path) -> None:
    path = tmp_path / "secrets"
    path.write_text(f"{OLD}\n")
    connection = connected(server, secrets=[], secrets_file=path)
    connection.deliver([Delivery(event_record(1))])
    path.write_text(f"{NEW}\n{OLD}\n")
    connection.deliver([Delivery(event_record(2))])
    path.write_text("no secret\n")
    with pytest.raises(AwayError, match="secrets: is no base64"):
        connection.deliver([Delivery(event_record(3))])
    connection.close()
    first, second = server.asked
    assert [len(asked.headers["webhook-signature"].split(" ")) for asked in (first, second)] == [1, 2]
    verify(OLD, first)
    verify(NEW, second)


@pytest.mark.parametrize("content", [None, "", "whsec_short", "a\n" * 5])
def test_a_file_without_secrets_is_a_mistake(server: PushServer, tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "s").write_text(content)
    with pytest.raises(ConfigError, match="target hook: secrets"):
        connected(server, secrets=[], secrets_file=tmp_path / "s")


def test_without_secrets_nothing_is_signed(server: PushServer) -> None:
    delivered(connected(server, secrets=[]))
    assert "webhook-signature" not in server.asked[0].headers


def test_a_picture_is_in_the_signed_body(server: PushServer) -> None:
    deliveries = [Delivery(event_record(1), Picture(JPEG)), Delivery(event_record(2), Picture(None, "it is gone"))]
    delivered(connected(server), *deliveries)
    first, second = (verify(NEW, asked) for asked in server.asked)
    assert base64.b64decode(first["picture"]["jpeg"]) == JPEG
    assert first["picture"]["reason"] is None
    assert second["picture"] == {"jpeg": None, "reason": "it is gone"}
    assert first["id"] == "run-1"


def test_cloudevents_are_one_signed_body(server: PushServer) -> None:
    """Nothing of them is in headers, which nobody signs."""
    record = event_record(source="Gartentür")
    delivered(connected(server, body="cloudevents"), Delivery(record, Picture(JPEG)))
    (asked,) = server.asked
    found = verify(NEW, asked)
    assert asked.headers["content-type"] == "application/cloudevents+json"
    event = JSONFormat().read(CloudEvent, asked.body)
    assert (event.get_id(), event.get_type()) == (record.id, "lookout.event.line.crossed")
    assert base64.b64decode(found["data"].pop("picture")["jpeg"]) == JPEG
    assert found["data"] == json.loads(record.body)
    assert not {"id", "source", "subject"} & asked.headers.keys()


def test_an_id_that_could_be_taken_for_more_is_sent_as_its_digest(server: PushServer) -> None:
    delivered(connected(server), Delivery(event_record(id="run.1\r\nX: y")))
    assert len(server.asked[0].headers["webhook-id"]) == 64
    verify(NEW, server.asked[0])


def test_further_headers_are_sent(server: PushServer) -> None:
    delivered(connected(server, headers={"Authorization": Secret("Bearer t0ken")}))
    assert server.asked[0].headers["authorization"] == "Bearer t0ken"


def test_records_come_in_order_over_one_connection(server: PushServer) -> None:
    deliveries = [Delivery(event_record(n)) for n in range(1, 31)]
    connection = connected(server)
    results: list[str | None] = []
    while len(results) < 30:  # a slow machine needs several turns
        results += connection.deliver(deliveries[len(results) :])
    connection.close()
    assert results == [None] * 30
    assert [asked.headers["webhook-id"] for asked in server.asked] == [f"run-{n}" for n in range(1, 31)]
    assert len({asked.peer for asked in server.asked}) == 1


# --- what a status means ---------------------------------------------------------------------------------------------


def _answering(server: PushServer, *replies: Reply) -> None:
    """In turn, and then always the last."""
    rows = list(replies)
    server.answer = lambda _: rows.pop(0) if len(rows) > 1 else rows[0]


@pytest.mark.parametrize("status", [400, 403, 404, 405, 413, 422])
def test_a_refusal_costs_that_record_alone(server: PushServer, status: int) -> None:
    _answering(server, Reply(), Reply(status, b"<html>s3cret</html>"), Reply())
    results = delivered(connected(server), *(Delivery(event_record(n)) for n in (1, 2, 3)))
    assert results[0::2] == [None, None]
    assert results[1] == f"127.0.0.1 refuses it: {status}"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(server: PushServer, status: int) -> None:
    with PushServer() as elsewhere:
        _answering(server, Reply(status, headers={"Location": elsewhere.url("/x")}))
        (result,) = delivered(connected(server))
        assert result is not None
        assert f"answers {status} and names another address" in result
        assert str(elsewhere.port) not in result
        assert elsewhere.asked == []


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_the_rest_comes_again_after_a_passing_trouble(server: PushServer, status: int) -> None:
    _answering(server, Reply(), Reply(422), Reply(status))
    with pytest.raises(AwayError, match=str(status)) as caught:
        delivered(connected(server), *(Delivery(event_record(n)) for n in (1, 2, 3, 4)))
    assert caught.value.settled == [None, "127.0.0.1 refuses it: 422"]
    assert caught.value.retry_in_s is None


_RETRIES: list[tuple[Callable[[float], str], float | None]] = [
    (lambda _: "17", 17),
    (lambda _: "0", 0),
    (lambda _: "86400", 3600),
    (lambda _: "9" * 400, 3600),
    (lambda now: formatdate(now + 120, usegmt=True), 120),
    (lambda now: formatdate(now + 86400, usegmt=True), 3600),
    (lambda now: formatdate(now - 60, usegmt=True), 0),
    (lambda _: "soon", None),
    (lambda _: "-5", None),
]


@pytest.mark.parametrize(("header", "seconds"), _RETRIES)
@pytest.mark.parametrize("status", [429, 503])
def test_the_server_says_when(
    server: PushServer, status: int, header: Callable[[float], str], seconds: float | None
) -> None:
    clock = ManualClock()
    now = clock.utc_ns() // 1_000_000_000
    _answering(server, Reply(status, headers={"Retry-After": header(now)}))
    with pytest.raises(AwayError) as caught:
        delivered(connected(server, clock))
    assert caught.value.retry_in_s == (None if seconds is None else pytest.approx(seconds, abs=1))


def test_a_login_that_is_refused_costs_no_record(server: PushServer) -> None:
    _answering(server, Reply(401))
    with pytest.raises(AwayError, match="refuses the login"):
        delivered(connected(server))


def test_a_target_that_is_gone_stops(server: PushServer) -> None:
    _answering(server, Reply(), Reply(410))
    with pytest.raises(GoneError, match="410") as caught:
        delivered(connected(server), *(Delivery(event_record(n)) for n in (1, 2, 3)))
    assert caught.value.settled == [None]


def test_a_server_that_is_away_is_told_at_the_start() -> None:
    with PushServer() as server:
        settings = target(server)
    with pytest.raises(AwayError, match="Connection refused"):
        open_target(settings, context())


def test_no_secret_is_in_an_error_or_a_log(server: PushServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[str] = []
    replies = [Reply(code, b"s3cret " * 9, {"X-Echo": "s3cret"}) for code in (301, 400, 401, 410, 429, 500, 200)]
    for reply in replies:
        _answering(server, reply)
        try:
            told += map(str, delivered(connected(server, headers={"X-Key": Secret("s3cret")})))
        except (AwayError, GoneError) as error:
            told.append(f"{error} {error!r} {error.__cause__!r}")
    told += [repr(target(server)), caplog.text]
    for secret in ("s3cret", NEW, OLD, OLD[6:]):
        assert secret not in "\n".join(told)


def test_secrets_are_those_of_the_standard() -> None:
    assert key_of(OLD) == b"o" * 24
    assert key_of(NEW.rstrip("=")) == b"n" * 32
    for text in ("whsec_", "short", "not base64 at all, but long enough to be one", "a-_b" * 10, "A" * 200):
        with pytest.raises(ValueError, match="openssl rand"):
            key_of(text)
