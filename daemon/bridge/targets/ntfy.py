"""A topic of ntfy: https://docs.ntfy.sh/publish/."""

from __future__ import annotations

from base64 import b64encode
from time import monotonic

import msgspec

from daemon.bridge.port import AwayError
from daemon.bridge.push.answers import check_answer, said_in
from daemon.bridge.push.client import PushClient, server_of
from daemon.bridge.push.files import secret_of
from daemon.bridge.push.names import SYSTEM, Names
from daemon.bridge.push.people import PeopleConnection
from daemon.bridge.push.texts import Said, Texts
from daemon.bridge.targets.opening import TargetContext
from daemon.clock import Clock
from daemon.config.targets import NtfyTarget
from daemon.system.http_client import HttpAnswer, HttpRequest

_OPEN_S = 5.0
_TAGS = {"wrong": "warning", "right": "white_check_mark"}
_NO_ATTACHMENTS = 40014  # the server's own code: it keeps none
_NO_BANDWIDTH = 42905  # of attachments, for today
_WORD_BYTES = 45  # that an encoded word of RFC 2047 holds, with its frame


class _Failure(msgspec.Struct):
    code: int = 0


def connect(target: NtfyTarget, context: TargetContext, names: Names = SYSTEM) -> PeopleConnection:
    """See `daemon.bridge.targets.opening.open_target`."""
    messenger = _Ntfy(target, context.clock, names)
    messenger.reach(min(target.timeout_s, _OPEN_S))
    return PeopleConnection(messenger, Texts(target.text, target.click, context.clock), target.timeout_s)


class _Ntfy:
    def __init__(self, target: NtfyTarget, clock: Clock, names: Names) -> None:
        self._target, self._clock = target, clock
        secret_of(target.name, "token_file", target.token, target.token_file)  # a mistake is told at once
        self._token = ""  # of the last request
        self._client = PushClient(target, server_of(target.url.reveal()), names)

    def reach(self, limit_s: float) -> None:
        self._client.reach(monotonic() + limit_s)

    def send(self, said: Said, until: float) -> None:
        """The picture is the body of the one request, and the text its header; without a picture the text is the
        body."""
        if said.picture is not None:
            answer = self._posted(said, until)
            if not _is_of_picture(answer):
                self._check(answer)
                return
            reason = self._error(answer) or "it is too large"
            said = said.without_picture(f"ntfy refuses it: {answer.status}, {reason}")
        self._check(self._posted(said, until))

    def close(self) -> None:
        self._client.close()

    def _posted(self, said: Said, until: float) -> HttpAnswer:
        target, picture = self._target, said.picture
        headers = {"Title": encoded(said.title), "Priority": str(target.priority)}
        token = secret_of(target.name, "token_file", target.token, target.token_file, AwayError)
        self._token = token or ""
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if said.click:
            headers["Click"] = encoded(said.click)
        if said.mood in _TAGS:
            headers["Tags"] = _TAGS[said.mood]
        if picture is None:
            headers["Content-Type"] = "text/plain; charset=utf-8"
        else:
            headers |= {"Message": encoded(said.text), "Filename": "event.jpg", "Content-Type": "image/jpeg"}
        body = said.text.encode() if picture is None else picture
        return self._client.exchange(HttpRequest("POST", self._client.server.path, body, headers), until)

    def _check(self, answer: HttpAnswer) -> None:
        who = f"ntfy at {self._client.server.shown}"
        check_answer(answer, who, self._clock.utc_ns(), said=self._error(answer))
        if answer.is_whole and not said_in(answer.content, "id"):
            raise AwayError(f"what answers at {self._client.server.shown} is not ntfy: is url https://SERVER/TOPIC?")

    def _error(self, answer: HttpAnswer) -> str:
        """Why it refuses, in a few of its own words; empty if it says nothing."""
        return said_in(answer.content, "error", self._token, self._client.server.path.strip("/"))


def encoded(text: str) -> str:
    """A header: as it is where it is plain ASCII, or else in words of RFC 2047, which ntfy decodes."""
    if text.isascii() and text.isprintable() and "=?" not in text:
        return text
    words, word = [], b""
    for sign in text:
        part = sign.encode()
        if len(word) + len(part) > _WORD_BYTES:
            words.append(word)
            word = b""
        word += part
    return " ".join(f"=?UTF-8?B?{b64encode(part).decode()}?=" for part in [*words, word])


def _is_of_picture(answer: HttpAnswer) -> bool:
    """Whether the picture alone is refused."""
    try:
        code = msgspec.json.decode(answer.content, type=_Failure).code
    except (msgspec.MsgspecError, UnicodeDecodeError):
        code = 0
    return answer.status == 413 or code in (_NO_ATTACHMENTS, _NO_BANDWIDTH)
