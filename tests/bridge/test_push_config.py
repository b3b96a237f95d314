"""Mistakes in the keys of push targets: each is one line that says what to write instead, and shows no secret."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest

from daemon.config.load import parse
from daemon.errors import ConfigError

_LEAST = {"model": {"path": "model.onnx"}, "sources": [{"id": "street", "type": "synthetic"}]}
_KEY = base64.b64encode(b"k" * 32).decode()
_TARGETS: Mapping[str, Mapping[str, Any]] = {
    "ntfy": {"url": "https://ntfy.example/s3cret"},
    "telegram": {"token": "123456789:AAE-abcdefghijklmnopqrst", "chat": "-1001234"},
    "webhook": {"url": "https://hook.example/s3cret"},
}


def check(kind: str, **more: Any) -> None:
    parse(json.dumps({**_LEAST, "bridge": {"targets": [{"name": "t", "type": kind, **_TARGETS[kind], **more}]}}))


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("ntfy", {}),
        ("ntfy", {"url": "http://127.0.0.1:8080/a-topic", "allow": ["127.0.0.1"]}),
        (
            "ntfy",
            {"url": "https://[fd00::1]/x/y", "allow": ["fd00::/8"], "click": "https://p/{daemon}/{source}?at={at}"},
        ),
        ("ntfy", {"url": "http://ntfy.example/x", "allow_plaintext": True, "text": "{event} {rule} {reason} {daemon}"}),
        ("telegram", {}),
        ("telegram", {"chat": "@my_channel", "api": "http://localhost:8081", "allow": ["127.0.0.0/8", "::1"]}),
        ("webhook", {"secrets": [f"whsec_{_KEY}", _KEY], "headers": {"Authorization": "Bearer x"}, "timeout_s": 3}),
    ],
)
def test_targets_that_can_be(kind: str, more: dict[str, Any]) -> None:
    check(kind, **more)


@pytest.mark.parametrize(
    ("kind", "more", "said"),
    [
        ("ntfy", {"url": "ftp://x/s3cret"}, "url: is no URL, such as https://HOST/PATH"),
        ("ntfy", {"url": "https://x y/s3cret"}, "url: is no URL"),
        ("ntfy", {"url": "https://x/s3cret\n"}, "url: is no URL"),
        ("ntfy", {"url": "https://x:99999/s3cret"}, "url: is no URL"),
        ("ntfy", {"url": "https://bücher.example/s3cret"}, "url: is no URL"),
        ("ntfy", {"url": "https://ntfy.example"}, "https://SERVER/TOPIC"),
        ("ntfy", {"url": "https://ntfy.example/s3cret?x=1"}, "https://SERVER/TOPIC"),
        ("ntfy", {"url": "https://user:s3cret@ntfy.example/x"}, "may hold no user name or password"),
        ("ntfy", {"url": "http://ntfy.example/s3cret"}, "allow_plaintext: true"),
        ("ntfy", {"token": "s3cret\nX: y"}, "token: is empty, or holds signs"),
        ("ntfy", {"token": "s3cret", "token_file": "x"}, "set one of token and token_file"),
        ("ntfy", {"text": "{labl} at {source}"}, "text: {labl} is not known: there are {label}, {source}"),
        ("ntfy", {"text": "{label.__class__}"}, "text: {label.__class__} is not known"),
        ("ntfy", {"text": "{label at {source}"}, "text: a brace without its other one"),
        ("ntfy", {"click": "https://p/{label}"}, "click: {label} is not known: there are {source}, {id}, {at}"),
        ("ntfy", {"allow": ["10.0.0.1/8"]}, "allow: '10.0.0.1/8' is no network: write one such as 10.0.0.0/8"),
        ("telegram", {"token": "s3cret"}, "token: is no bot's"),
        ("telegram", {"chat": "my chat"}, "chat: 'my chat' is no chat"),
        ("telegram", {"api": "http://bots.example"}, "api: http:// can be read on the way"),
        ("telegram", {"text": "{x}"}, "text: {x} is not known"),
        ("webhook", {"url": "https://169.254.169.254/s3cret"}, "url: its address is link-local"),
        ("webhook", {"url": "https://[::ffff:10.0.0.1]/s3cret"}, "url: its address is private"),
        ("webhook", {"url": "http://localhost/s3cret"}, "url: its address is of this machine"),
        ("webhook", {"url": "https://hook.example/x#s3cret"}, "may hold no #"),
        ("webhook", {"secrets": ["whsec_s3cret"]}, "secrets[0]: "),
        ("webhook", {"secrets": [_KEY], "secrets_file": "x"}, "set one of secrets and secrets_file"),
        ("webhook", {"headers": {"webhook-id": "1"}}, "headers: 'webhook-id' cannot be set"),
        ("webhook", {"headers": {"Host": "x"}}, "headers: 'Host' cannot be set"),
        ("webhook", {"headers": {"X Y": "x"}}, "headers: 'X Y' cannot be set"),
        ("webhook", {"headers": {"X-Y": "s3cret\r\nZ: 1"}}, "headers: X-Y: holds signs"),
        ("webhook", {"timeout_s": 60}, "timeout_s"),
        ("webhook", {"name": "a b"}, "name: 'a b'"),
    ],
)  # fmt: skip
def test_mistakes_are_said(kind: str, more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(kind, **more)
    text = str(caught.value)
    assert text.startswith("bridge.targets[0]")
    assert said in text
    assert "\n" not in text
    assert "s3cret" not in text
