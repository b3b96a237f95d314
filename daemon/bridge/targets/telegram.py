"""A chat of Telegram, through a bot: https://core.telegram.org/bots/api. The bot's token is in the path of each
request, so no path is ever told."""

from __future__ import annotations

import secrets
from time import monotonic
from urllib.parse import quote

import msgspec

from daemon.bridge.port import AwayError
from daemon.bridge.push.answers import check_answer, said_in
from daemon.bridge.push.client import PushClient, server_of
from daemon.bridge.push.names import SYSTEM, Names
from daemon.bridge.push.people import PeopleConnection
from daemon.bridge.push.port import RefusedError
from daemon.bridge.push.texts import Said, Texts
from daemon.bridge.targets.opening import TargetContext
from daemon.clock import Clock
from daemon.config.targets import TelegramTarget
from daemon.errors import LookoutError
from daemon.system.http_client import HttpAnswer, HttpRequest

_OPEN_S = 5.0
_MAX_CAPTION = 1024  # units of UTF-16
_OF_PICTURE = (400, 413)  # such as a picture of odd sides: the text may go through
_NO_BOT = (401, 404)  # the token is wrong, or is none
_LOGIN_RETRY_S = 60.0


class _Parameters(msgspec.Struct):
    retry_after: float | None = None


class _Reply(msgspec.Struct):
    ok: bool = False
    parameters: _Parameters | None = None


def connect(target: TelegramTarget, context: TargetContext, names: Names = SYSTEM) -> PeopleConnection:
    """See `daemon.bridge.targets.opening.open_target`."""
    messenger = _Telegram(target, context.clock, names)
    try:
        messenger.log_in(min(target.timeout_s, _OPEN_S))
    except LookoutError:
        messenger.close()
        raise
    return PeopleConnection(messenger, Texts(target.text, None, context.clock), target.timeout_s)


class _Telegram:
    def __init__(self, target: TelegramTarget, clock: Clock, names: Names) -> None:
        self._chat, self._token, self._clock = target.chat, target.token, clock
        self._client = PushClient(target, server_of(target.api), names)

    def log_in(self, limit_s: float) -> None:
        """
        Raises:
            AwayError: nothing answers, what answers is not Telegram, or the token is refused.
            GoneError: 410.
        """
        answer = self._asked("getMe", b"", {}, monotonic() + limit_s)
        if answer.status in _NO_BOT:
            raise AwayError(f"Telegram refuses the bot's token ({answer.status})", retry_in_s=_LOGIN_RETRY_S)
        try:
            self._check(answer)
        except RefusedError as error:  # of no record: there is no connection
            raise AwayError(str(error), retry_in_s=_LOGIN_RETRY_S) from error

    def send(self, said: Said, until: float) -> None:
        if said.picture is not None:
            parts = {"chat_id": self._chat, "caption": caption(said.text)}
            body, content_type = form(parts, said.picture)
            answer = self._asked("sendPhoto", body, {"Content-Type": content_type}, until)
            if answer.status not in _OF_PICTURE:
                self._check(answer)
                return
            reason = said_in(answer.content, "description", self._token.reveal()) or "it is too large"
            said = said.without_picture(f"Telegram refuses it: {answer.status}, {reason}")
        content = msgspec.json.encode({"chat_id": self._chat, "text": said.text})
        self._check(self._asked("sendMessage", content, {"Content-Type": "application/json"}, until))

    def close(self) -> None:
        self._client.close()

    def _asked(self, method: str, body: bytes, headers: dict[str, str], until: float) -> HttpAnswer:
        root = self._client.server.path.rstrip("/")
        path = f"{root}/bot{quote(self._token.reveal(), safe=':')}/{method}"
        return self._client.exchange(HttpRequest("POST", path, body, headers), until)

    def _check(self, answer: HttpAnswer) -> None:
        reply = _reply(answer.content)
        wait_s = reply.parameters.retry_after if reply.parameters else None
        said = said_in(answer.content, "description", self._token.reveal())
        check_answer(answer, "Telegram", self._clock.utc_ns(), said=said, retry_s=wait_s)
        if answer.is_whole and not reply.ok:
            raise AwayError(f"what answers at {self._client.server.shown} is not Telegram: see api")


def form(parts: dict[str, str], picture: bytes) -> tuple[bytes, str]:
    """A body of multipart/form-data with a picture `photo`, and its content type."""
    boundary = secrets.token_hex(16)
    head = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n'
        f"Content-Type: text/plain; charset=utf-8\r\n\r\n{text}\r\n"
        for name, text in parts.items()
    )
    head += (
        f'--{boundary}\r\nContent-Disposition: form-data; name="photo"; filename="event.jpg"\r\n'
        "Content-Type: image/jpeg\r\n\r\n"
    )
    return head.encode() + picture + f"\r\n--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


def caption(text: str) -> str:
    """A text that Telegram takes beside a picture."""
    units = text.encode("utf-16-le")
    if len(units) <= 2 * _MAX_CAPTION:
        return text
    return units[: 2 * _MAX_CAPTION - 2].decode("utf-16-le", "ignore") + "…"


def _reply(content: bytes) -> _Reply:
    try:
        return msgspec.json.decode(content, type=_Reply)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _Reply()
