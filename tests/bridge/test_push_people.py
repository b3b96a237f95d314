"""What people are told: through ntfy and Telegram, with the picture in the same request, in words that they know."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from daemon.bridge.messages import Loss, Notice
from daemon.bridge.port import AwayError, Connection
from daemon.bridge.push.cooldown import Cooldown
from daemon.bridge.push.port import Digests
from daemon.bridge.push.texts import MAX_TEXT
from daemon.bridge.records import Delivery, Picture
from daemon.bridge.targets.ntfy import encoded
from daemon.bridge.targets.opening import open_target
from daemon.config.targets import NtfyTarget, TelegramTarget
from daemon.errors import ConfigError
from daemon.redact import Secret
from lookout.messages import Clip
from tests.support.clock import ManualClock
from tests.support.pushes import (
    AT,
    HERE,
    JPEG,
    Asked,
    Ntfy,
    PushServer,
    Reply,
    Telegram,
    context,
    event_record,
    record,
)

TOKEN = "123456789:AAE-s3cret_s3cret_s3cret_s3cret"  # noqa: S105 - of these tests
_S = 1_000_000_000
_MINUTE = 60 * _S


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")  # an hour ahead of UTC at `AT`, which is 22:13:20 there 23:13:20
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def clock_at(utc_ns: int) -> ManualClock:
    clock = ManualClock()
    clock.step((utc_ns - clock.utc_ns()) / 1e9)
    return clock


def ntfy(server: PushServer, *, at: int = AT + _MINUTE, **more: Any) -> Connection:
    target = NtfyTarget(name="phone", url=Secret(server.url("/s3cret-topic")), **{"allow": HERE, **more})
    return open_target(target, context(clock_at(at)))


def telegram(server: PushServer, *, at: int = AT + _MINUTE, **more: Any) -> Connection:
    settings = {"token": Secret(TOKEN), "chat": "123", "api": server.url("/api"), "allow": HERE, **more}
    return open_target(TelegramTarget(name="me", **settings), context(clock_at(at)))


def delivered(connection: Connection, *deliveries: Delivery) -> list[str | None]:
    try:
        return list(connection.deliver(deliveries))
    finally:
        connection.close()


def texts_of(*deliveries: Delivery, at: int = AT + _MINUTE, **more: Any) -> list[dict[str, Any]]:
    """As ntfy's subscribers get them."""
    stand_in = Ntfy()
    with PushServer(stand_in) as server:
        connection = ntfy(server, at=at, **more)
        results: list[str | None] = []
        while len(results) < len(deliveries):
            results += connection.deliver(deliveries[len(results) :])
        connection.close()
    assert results == [None] * len(deliveries)
    return stand_in.messages


# --- ntfy ------------------------------------------------------------------------------------------------------------


def test_ntfy_gets_text_and_picture_in_one_request() -> None:
    stand_in = Ntfy("tk_s3cret")
    with PushServer(stand_in) as server:
        connection = ntfy(server, token=Secret("tk_s3cret"), priority=5, click="https://cams.example/{source}?at={at}")
        assert delivered(connection, Delivery(event_record(), Picture(JPEG))) == [None]
        assert len(server.asked) == 1
    (message,) = stand_in.messages
    assert message["picture"] == JPEG
    assert message["message"] == "person at door, 23:13:20"
    assert (message["title"], message["priority"], message["topic"]) == ("door, porch", 5, "s3cret-topic")
    assert message["click"] == "https://cams.example/door?at=2023-11-14T22%3A13%3A20.000Z"


def test_ntfy_reads_names_of_any_language() -> None:
    source, rule = "Gartentür", "ворота " * 12
    (with_picture, without) = texts_of(
        Delivery(event_record(source=source, rule=rule), Picture(JPEG)),
        Delivery(event_record(source=source, rule=rule)),
        text="{label} at {source} 🚪 {rule}",
    )
    assert with_picture["message"] == without["message"] == f"person at Gartentür 🚪 {rule[:79]}…"
    assert with_picture["title"].startswith("Gartentür, ворота")


@pytest.mark.parametrize("text", ["plain", "ü", "=?UTF-8?B?eA==?=", "日本" * 200, "🚪" * 100, "a\nb", ""])
def test_headers_are_ascii_in_short_words(text: str) -> None:
    from email.header import decode_header, make_header

    found = encoded(text)
    assert found.isascii()
    assert "\n" not in found
    assert all(len(word) <= 75 for word in found.split(" "))
    assert str(make_header(decode_header(found))) == text


@pytest.mark.parametrize("stand_in", [Ntfy(attachment_bytes=100), Ntfy(attachment_bytes=None)])
def test_a_picture_that_ntfy_does_not_take_leaves_the_text_and_the_reason(stand_in: Ntfy) -> None:
    stand_in.messages.clear()
    with PushServer(stand_in) as server:
        assert delivered(ntfy(server), Delivery(event_record(), Picture(JPEG))) == [None]
    (message,) = stand_in.messages
    assert message["picture"] is None
    assert message["message"].startswith("person at door, 23:13:20\n(no picture: ntfy refuses it: 4")
    assert "attachment" in message["message"]


def test_a_picture_that_is_not_there_is_explained() -> None:
    (message,) = texts_of(Delivery(event_record(), Picture(None, "it is not there: no picture of this event")))
    assert message["message"] == "person at door, 23:13:20\n(no picture: it is not there: no picture of this event)"


def test_the_token_of_a_file_is_read_for_each_request(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("tk_old\n")
    with PushServer(Ntfy("tk_new")) as server:
        connection = ntfy(server, token_file=tmp_path / "token")
        with pytest.raises(AwayError, match=r"refuses the login \(401\): unauthorized"):
            connection.deliver([Delivery(event_record())])
        (tmp_path / "token").write_text("tk_new\n")
        assert connection.deliver([Delivery(event_record())]) == [None]
        connection.close()
        (tmp_path / "token").unlink()
        with pytest.raises(ConfigError, match="token_file"):
            ntfy(server, token_file=tmp_path / "token")


def test_what_answers_and_is_not_ntfy_confirms_nothing() -> None:
    page = Reply(200, b"<html>Log in to the hotel</html>")
    with PushServer(lambda _: page) as server, pytest.raises(AwayError, match="is not ntfy"):
        delivered(ntfy(server), Delivery(event_record()))


def test_the_token_that_a_server_repeats_is_not_told() -> None:
    def echo(asked: Asked) -> Reply:
        return Reply(400, b'{"error":"no %s at %s"}' % (asked.headers["authorization"].encode(), asked.path.encode()))

    with PushServer(echo) as server:
        (result,) = delivered(ntfy(server, token=Secret("tk_s3cret")), Delivery(event_record()))
    assert result == "ntfy at 127.0.0.1 refuses it: 400: no Bearer *** at /***"


# --- Telegram --------------------------------------------------------------------------------------------------------


def test_telegram_gets_text_and_picture_in_one_request() -> None:
    stand_in = Telegram(TOKEN)
    with PushServer(stand_in) as server:
        deliveries = [Delivery(event_record(1), Picture(JPEG)), Delivery(event_record(2))]
        assert delivered(telegram(server), *deliveries) == [None, None]
    first, second = stand_in.messages
    assert (first["caption"], first["picture"], first["chat_id"]) == ("person at door, 23:13:20", JPEG, "123")
    assert (second["text"], second["picture"]) == ("person at door, 23:13:20", None)
    assert "parse_mode" not in first | second
    assert stand_in.calls == ["getMe", "sendPhoto", "sendMessage"]


@pytest.mark.parametrize(
    ("most", "picture", "reason"),
    [
        (100, JPEG, "413, Request Entity Too Large"),
        (10 << 20, b"GIF89a", "400, Bad Request: IMAGE_PROCESS_FAILED"),
    ],
)
def test_a_picture_that_telegram_does_not_take_leaves_the_text_and_the_reason(
    most: int, picture: bytes, reason: str
) -> None:
    stand_in = Telegram(TOKEN, photo_bytes=most)
    with PushServer(stand_in) as server:
        assert delivered(telegram(server), Delivery(event_record(), Picture(picture))) == [None]
    (message,) = stand_in.messages
    assert message["picture"] is None
    assert message["text"] == f"person at door, 23:13:20\n(no picture: Telegram refuses it: {reason})"


def test_a_long_text_of_wide_signs_fits_beside_a_picture() -> None:
    stand_in = Telegram(TOKEN)
    with PushServer(stand_in) as server:
        connection = telegram(server, text="🚪" * 900)
        assert delivered(connection, Delivery(event_record(), Picture(JPEG))) == [None]
    assert stand_in.messages[0]["picture"] == JPEG
    assert stand_in.messages[0]["caption"].endswith("🚪…")


def test_telegram_says_when() -> None:
    reply = b'{"ok":false,"error_code":429,"description":"Too Many Requests","parameters":{"retry_after":31}}'
    stand_in = Telegram(TOKEN)
    with PushServer(stand_in) as server:
        connection = telegram(server)
        server.answer = lambda _: Reply(429, reply, {"Retry-After": "99"})
        with pytest.raises(AwayError, match="429: Too Many Requests") as caught:
            delivered(connection, Delivery(event_record()))
    assert caught.value.retry_in_s == 31


def test_a_chat_that_is_not_there_is_refused() -> None:
    with PushServer(Telegram(TOKEN)) as server:
        (result,) = delivered(telegram(server, chat="456"), Delivery(event_record(), Picture(JPEG)))
    assert result == "Telegram refuses it: 400: Bad Request: chat not found"


@pytest.mark.parametrize("status", [302, 400, 403])
def test_a_login_that_is_refused_is_tried_again_later(status: int) -> None:
    with PushServer(lambda _: Reply(status)) as server, pytest.raises(AwayError, match=str(status)) as caught:
        telegram(server)
    assert caught.value.retry_in_s == 60


def test_the_token_is_in_no_error_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[str] = []

    def echo(status: int, asked: Asked) -> Reply:
        return Reply(status, b'{"ok":false,"description":"no such method: %s"}' % asked.path.encode())

    for status in (200, 301, 400, 401, 404, 429, 500):
        with PushServer(Telegram(TOKEN)) as server:
            connection = telegram(server)
            server.answer = partial(echo, status)
            try:
                told += map(str, delivered(connection, Delivery(event_record(), Picture(JPEG))))
            except AwayError as error:
                told.append(f"{error!r} {error.__cause__!r}")
    with PushServer(Telegram("another")) as server:
        with pytest.raises(AwayError, match=r"refuses the bot's token \(401\)") as caught:
            telegram(server)
        told.append(str(caught.value))
        told.append(repr(TelegramTarget(name="me", token=Secret(TOKEN), chat="1")))
    with pytest.raises(AwayError) as caught:
        telegram(server)
    text = "\n".join([*told, f"{caught.value} {caught.value.__cause__!r}", caplog.text])
    assert "no such method: /api/bot***/sendMessage" in text
    assert "s3cret" not in text


# --- words -----------------------------------------------------------------------------------------------------------


def said(*records: Any, **more: Any) -> list[str]:
    return [str(message["message"]) for message in texts_of(*map(Delivery, records), **more)]


def test_placeholders_are_replaced_once_by_name() -> None:
    text = "{label}|{source}|{rule}|{event}|{time}|{daemon}|{reason}"
    (found,) = said(event_record(label="{source}", rule="{daemon.__class__}", reason="left"), text=text)
    assert found == "{source}|door|{daemon.__class__}|line.crossed|23:13:20|hall|left"


def test_values_are_short_and_without_control_characters() -> None:
    (found,) = said(event_record(label="a\x1b[31m\r\n\u202eb", rule="x" * 5000), text="{label}: {rule}")
    assert found == f"a\ufffd[31m\ufffd\ufffd\ufffdb: {'x' * 79}…"
    (found,) = said(event_record(rule="ж" * 5000), text="{rule} " * 140)
    assert len(found) == MAX_TEXT


def test_what_has_no_label_has_a_word() -> None:
    crowd = event_record(kind="crowd", phase="over", label=None, track=None, count=7, box=None)
    assert said(crowd, event_record(label=None, rule=None), text="{label} at {source}, {rule}") == [
        "crowd of 7 at door, porch",
        "object at door, no rule",
    ]


def test_a_time_of_another_day_has_its_date() -> None:
    assert said(event_record(), at=AT + 3600 * _S) == ["person at door, 2023-11-14 23:13:20"]


def _notice(about: Any, condition: Any = "down", reason: str | None = "refused the login", **more: Any) -> Any:
    fields = {"name": "door", "since": AT, "at": AT + 840 * _S, **more}
    notice = Notice(id="n1", daemon="hall", about=about, condition=condition, reason=reason, **fields)
    return record("status", notice, at=notice.at)


def test_changes_of_state_are_sentences() -> None:
    assert said(
        _notice("source"),
        _notice("source", "up"),
        _notice("store", reason="disk_full: No space left on device", name="main"),
        _notice("store", "up", None, name="main"),
        _notice("daemon", reason=None, name=""),
        _notice("daemon", "up", None, name=""),
        _notice("recording", reason="62 s of 10 min are missing"),
        _notice("recording", "up", None),
    ) == [
        "Camera door is down since 23:13:20: refused the login",
        "Camera door is up again. It was down from 23:13:20 to 23:27:20: refused the login",
        "Store main cannot be written since 23:13:20: disk_full: No space left on device",
        "Store main can be written again. It could not from 23:13:20 to 23:27:20",
        "Lookout at hall does not answer since 23:13:20",
        "Lookout at hall answers again. It did not from 23:13:20 to 23:27:20",
        "Recordings of camera door have gaps since 23:13:20: 62 s of 10 min are missing",
        "Recordings of camera door have no gaps any more. They had from 23:13:20 to 23:27:20",
    ]
    down, up = texts_of(Delivery(_notice("source")), Delivery(_notice("source", "up")))
    assert (down["tags"], up["tags"], down["title"]) == ("warning", "white_check_mark", "Camera door")


def test_clips_and_losses_are_sentences() -> None:
    clip = Clip(instance="run", source="door", index=1, id="run-1", store="main", events=["run-1"], begin=AT,
                end=AT + 12 * _S, covered=12 * _S, state="ready", path="/api/v1/x")  # fmt: skip
    loss = Loss(id="l1", daemon="hall", count=12, at=AT, cause="spool_full")
    assert said(record("clip", clip), record("loss", loss)) == [
        "The video of door, 23:13:20 to 23:13:32, is ready",
        "12 events of hall are lost: the bridge's spool was full",
    ]
    unknown = Loss(id="l2", daemon="hall", count=None, at=AT, cause="wire")
    assert said(record("loss", unknown)) == [
        "Messages about videos of hall did not arrive. Some videos may not be told"
    ]


def test_a_record_that_cannot_be_read_costs_itself_alone() -> None:
    broken = event_record(1).__class__(7, 1, "event", "hall", "door", "run-1", AT, b'{"schema":"lookout.event/9"}')
    with PushServer(Ntfy()) as server:
        first, second = delivered(ntfy(server), Delivery(broken), Delivery(event_record(2)))
    assert first is not None
    assert first.startswith("it cannot be read")
    assert second is None


# --- after an outage -------------------------------------------------------------------------------------------------


def digest(connection: Connection, *deliveries: Delivery) -> str | None:
    assert isinstance(connection, Digests)
    try:
        return connection.digest(deliveries)
    finally:
        connection.close()


def test_an_hour_away_is_one_message_with_the_newest_picture() -> None:
    rows = [Delivery(event_record(n, at=AT + n * _MINUTE, label="person" if n % 5 else "car")) for n in range(25)]
    rows += [
        Delivery(event_record(n, at=AT + n * _MINUTE, source="yard"), Picture(b"\xff\xd8old")) for n in range(25, 37)
    ]
    rows += [
        Delivery(event_record(37, at=AT + 37 * _MINUTE, source="yard"), Picture(JPEG)),
        Delivery(_notice("source")),
    ]
    for stand_in, connect in ((Ntfy(), ntfy), (Telegram(TOKEN), telegram)):
        with PushServer(stand_in) as server:
            assert digest(connect(server, at=AT + 40 * _MINUTE), *rows) is None
        (message,) = stand_in.messages
        assert message["picture"] == JPEG
        assert message.get("caption", message.get("message")) == (
            "38 events while away, 23:13:20 to 23:50:20: door 20 person, 5 car; yard 13 person\n"
            "Camera door is down since 23:13:20: refused the login"
        )


def test_a_digest_of_any_number_is_one_message_of_bounded_length() -> None:
    rows = [
        Delivery(event_record(n, source=f"camera-{n % 300}", label=f"label-{n % 17}", at=AT + n * _S))
        for n in range(5000)
    ]
    losses = [Delivery(record("loss", Loss(id="l", daemon="hall", count=9, at=AT, cause="disk")))]
    notices = [Delivery(_notice("source", name=f"camera-{n}", reason="x" * 900)) for n in range(40)]
    stand_in = Ntfy()
    with PushServer(stand_in) as server:
        assert digest(ntfy(server), *rows, *losses, *notices) is None
    (message,) = stand_in.messages
    assert message["message"].startswith("5000 events while away, ")
    assert "292 other sources " in message["message"]
    assert "9 events lost" in message["message"]
    assert len(message["message"]) <= MAX_TEXT


def test_a_digest_of_one_is_its_message() -> None:
    stand_in = Ntfy()
    with PushServer(stand_in) as server:
        assert digest(ntfy(server), Delivery(event_record(), Picture(JPEG))) is None
    assert stand_in.messages[0]["message"] == "person at door, 23:13:20"


# --- cooldown --------------------------------------------------------------------------------------------------------


def admitted(seconds: float, *records: Any) -> list[bool]:
    cooldown = Cooldown(seconds)
    return [cooldown.admits(row) for row in records]


def test_what_comes_soon_after_another_of_its_source_and_rule_is_left_out() -> None:
    rows = [
        event_record(1),
        event_record(2, at=AT + 59 * _S),
        event_record(3, at=AT + 59 * _S, rule="gate"),
        event_record(4, at=AT + 59 * _S, source="yard"),
        event_record(5, at=AT + 60 * _S),
        event_record(6, at=AT + 119 * _S),
        event_record(7, at=AT + 30 * _S),  # came late: it happened within the time of another
        event_record(8, at=AT - 500 * _S),
    ]
    assert admitted(60, *rows) == [True, False, True, True, True, False, False, True]
    assert admitted(0, *rows) == [True] * 8


def test_a_clock_that_is_set_back_admits_no_flood() -> None:
    hour_ago = AT - 3600 * _S
    rows = [event_record(1), *(event_record(2 + n, at=hour_ago + 20 * n * _S) for n in range(5))]
    assert admitted(60, *rows) == [True, True, False, False, True, False]


def test_changes_of_state_are_never_left_out() -> None:
    assert admitted(3600, _notice("source"), _notice("source", "up"), _notice("source")) == [True] * 3
