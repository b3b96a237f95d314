"""The HTTP API of a running daemon, as commands ask it: where it is, with which token, and within which time."""

from __future__ import annotations

import json
import os
import ssl
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from daemon.config.http import HttpConfig, Role, is_loopback
from daemon.config.load import load_http
from daemon.errors import ConfigError, LookoutError
from daemon.peers.addresses import given_token, http_address, own_http, token_of
from daemon.redact import Secret, printable
from daemon.system.http_client import HttpAnswer, HttpRequest, fetch, unverified_tls

_READ_S = 5.0
CHANGE_S = 75.0  # the daemon answers changes within a minute
_STARTS = "it is starting, or hangs; its log says more"


class AwayError(LookoutError):
    """Nobody answers, or not in time."""


class RefusedError(LookoutError):
    """The daemon has answered, and refuses.

    Attributes:
        mistakes: of the configuration, one line each; empty where it tells of none.
    """

    def __init__(self, text: str, status: int, mistakes: list[str]) -> None:
        super().__init__(text)
        self.status, self.mistakes = status, mistakes


@dataclass(frozen=True)
class RunningDaemon:
    """Attributes:
    url: of its HTTP API, or of its bridge's account.
    token: None without one.
    is_here: it runs on this machine, so that its certificate need not be checked.
    """

    url: str
    token: Secret | None
    is_here: bool

    def at_port(self, port: int) -> RunningDaemon:
        """The server on another port of the same host."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        shown = f"[{host}]" if ":" in host else host
        return RunningDaemon(f"{parts.scheme}://{shown}:{port}", self.token, self.is_here)

    def check_alive(self, limit_s: float) -> None:
        """
        Raises:
            AwayError: it does not answer at all.
        """
        self._fetch(HttpRequest("GET", "/live"), limit_s)

    def ask(self, method: str, path: str, body: object = None, *, limit_s: float) -> Any:
        """The answer, from JSON.

        Args:
            path: with `/api/v1` before it.
            body: sent as JSON; None for none.

        Raises:
            AwayError: there is no answer in time.
            RefusedError: it is another one than 200.
            LookoutError: it is none of Lookout's.
        """
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token.reveal()}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        content = b"" if body is None else msgspec.json.encode(body)
        answer = self._fetch(HttpRequest(method, path, content, headers), limit_s)
        if answer.status != 200:
            raise self._refusal(answer)
        try:
            return json.loads(answer.content)
        except ValueError as error:
            raise LookoutError(f"{self.url}{path} does not answer as Lookout does") from error

    def _fetch(self, request: HttpRequest, limit_s: float) -> HttpAnswer:
        tls = unverified_tls() if self.is_here else ssl.create_default_context()
        try:
            return fetch(self.url, request, limit_s, tls)
        except TimeoutError as error:
            raise AwayError(f"{self.url} does not answer within {limit_s:g} s: {_STARTS}") from error
        except ConnectionRefusedError as error:
            advice = "is a daemon running, and was it started with this http.port?"
            raise AwayError(f"{self.url} does not answer: nobody listens there; {advice}") from error
        except (OSError, HTTPException) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise AwayError(f"{self.url} does not answer as Lookout does: {reason or error}") from error

    def _refusal(self, answer: HttpAnswer) -> LookoutError:
        try:
            told = msgspec.json.decode(answer.content, type=_Refusal)
        except msgspec.MsgspecError:
            told = _Refusal(f"{self.url} answers {answer.status}")
        text = printable(told.error)
        if answer.status == 401:
            text = f"{self.url}: the token is not one of this daemon's: see --token, http of -c, and LOOKOUT_TOKEN"
            if self.token is None:
                text = f"{self.url} wants a token: set LOOKOUT_TOKEN, or http.token in the file of -c"
        return RefusedError(text, answer.status, [printable(row) for row in told.mistakes])


class _Refusal(msgspec.Struct):
    error: str
    mistakes: list[str] = []


def running_daemon(config: Path, url: str | None, token: str | None, roles: tuple[Role, ...]) -> RunningDaemon:
    """The daemon that runs with a configuration, or at a URL.

    Args:
        config: file, of which only `http` is read; not at all where a URL is given.
        token: instead of one of the file, and of LOOKOUT_TOKEN.
        roles: of tokens of the file, the wanted one first.

    Raises:
        ConfigError: the file or a token cannot be used, or the file says nowhere to ask; says what to do.
    """
    given, own = (given_token(text) for text in (token, os.environ.get("LOOKOUT_TOKEN")))
    if url is not None:
        address = http_address(url)
        return RunningDaemon(address, given or own, is_here=is_loopback(urlsplit(address).hostname or ""))
    http = load_http(config)
    check_can_be_asked(config, http)
    return RunningDaemon(own_http(http), given or token_of(http, roles) or own, is_here=True)


def check_can_be_asked(config: Path, http: HttpConfig) -> None:
    """
    Raises:
        ConfigError: the daemon of this configuration cannot be asked.
    """
    if not http.enabled:
        raise ConfigError(f"{config}: http.enabled is not true, so its daemon cannot be asked: set it, and http.token")
    if not http.port:
        raise ConfigError(f"{config}: http.port is 0, a free one: name one, or give the address with --url")


def log_level(daemon: RunningDaemon, level: str | None) -> str:
    """Set the level of its log, if one is given; returns the level in use.

    Raises:
        LookoutError: as `RunningDaemon.ask`.
    """
    method, body = ("GET", None) if level is None else ("PUT", {"level": level})
    limit_s = _READ_S if level is None else CHANGE_S
    found = daemon.ask(method, "/api/v1/log", body, limit_s=limit_s)
    return str(found["level"]) if isinstance(found, dict) and "level" in found else "unknown"
