"""A POST to a URL, signed as Standard Webhooks has it: https://www.standardwebhooks.com.

A picture is in the JSON, in base64: libraries that verify a signature take a text, so no body of parts would pass.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64encode
from dataclasses import replace
from time import monotonic

import msgspec

from daemon.bridge.formats.port import formatter
from daemon.bridge.port import AwayError
from daemon.bridge.push.answers import check_answer
from daemon.bridge.push.client import PushClient, server_of
from daemon.bridge.push.connection import PushConnection
from daemon.bridge.push.files import lines_of
from daemon.bridge.push.names import SYSTEM, Names
from daemon.bridge.push.port import RefusedError
from daemon.bridge.records import Delivery, Encoded, Picture, Record
from daemon.bridge.targets.opening import TargetContext
from daemon.clock import Clock
from daemon.config.push_checks import key_of
from daemon.config.targets import WebhookTarget
from daemon.errors import ConfigError, LookoutError
from daemon.system.http_client import HttpRequest

_OPEN_S = 5.0
_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_MAX_SECRETS = 4
_Fields = dict[str, msgspec.Raw]


def connect(target: WebhookTarget, context: TargetContext, names: Names = SYSTEM) -> PushConnection:
    """See `daemon.bridge.targets.opening.open_target`."""
    webhook = _Webhook(target, context.clock, names)
    webhook.reach(min(target.timeout_s, _OPEN_S))
    return PushConnection(webhook, target.timeout_s)


class _Webhook:
    def __init__(self, target: WebhookTarget, clock: Clock, names: Names) -> None:
        self._target, self._clock = target, clock
        self._format = formatter(target.body)
        _keys(target, ConfigError)  # a mistake is told at once
        self._client = PushClient(target, server_of(target.url.reveal()), names)

    def reach(self, limit_s: float) -> None:
        self._client.reach(monotonic() + limit_s)

    def push(self, delivery: Delivery, until: float) -> None:
        """A record that the format leaves out is confirmed."""
        try:
            rows = self._format.record(delivery.record)
        except msgspec.MsgspecError as error:
            raise RefusedError(f"it cannot be read: {error}") from error
        for row in rows:
            self._post(delivery.record, _with_picture(row, delivery.picture), until)

    def close(self) -> None:
        self._client.close()

    def _post(self, record: Record, encoded: Encoded, until: float) -> None:
        now_ns = self._clock.utc_ns()
        id, seconds = message_id(record.id), now_ns // 1_000_000_000
        keys = _keys(self._target, AwayError)
        headers = {name: value.reveal() for name, value in self._target.headers.items()}
        headers |= {"Content-Type": encoded.content_type, "webhook-id": id, "webhook-timestamp": str(seconds)}
        if keys:
            headers["webhook-signature"] = " ".join(signature(key, id, seconds, encoded.body) for key in keys)
        request = HttpRequest("POST", self._client.server.path, encoded.body, headers)
        check_answer(self._client.exchange(request, until), self._client.server.shown, now_ns)


def signature(key: bytes, id: str, seconds: int, body: bytes) -> str:
    """Of one key, such as v1,K5oZ...: HMAC-SHA256 of `id.seconds.body`."""
    found = hmac.digest(key, f"{id}.{seconds}.".encode() + body, hashlib.sha256)
    return f"v1,{b64encode(found).decode()}"


def message_id(id: str) -> str:
    """The record's own; the digest of one with other signs, which the signed text could not be told from."""
    return id if _PLAIN_ID.fullmatch(id) else hashlib.sha256(id.encode()).hexdigest()


def _keys(target: WebhookTarget, error: type[LookoutError]) -> list[bytes]:
    """All keys, with those of the file, which is read each time."""
    file = target.secrets_file
    texts = [secret.reveal() for secret in target.secrets]
    found = lines_of(target.name, "secrets_file", file, error) if file else []
    if file and not 1 <= len(found) <= _MAX_SECRETS:
        raise error(f"target {target.name}: secrets_file: {file} needs one to {_MAX_SECRETS} lines, a secret each")
    try:
        return [key_of(text) for text in (*texts, *found)]
    except ValueError as failure:
        raise error(f"target {target.name}: secrets: {failure}") from failure


def _with_picture(encoded: Encoded, picture: Picture | None) -> Encoded:
    """With a field `picture` of the message: {"jpeg": BASE64, "reason": null}, or why there is none."""
    if picture is None:
        return encoded
    fields = msgspec.json.decode(encoded.body, type=_Fields)
    if "specversion" in fields and "data" in fields:  # CloudEvents in one body
        data = msgspec.json.decode(fields["data"], type=_Fields)
        body = msgspec.json.encode({**fields, "data": {**data, "picture": picture}})
    else:
        body = msgspec.json.encode({**fields, "picture": picture})
    return replace(encoded, body=body)
