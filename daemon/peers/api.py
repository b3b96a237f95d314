"""Requests to a daemon's HTTP API. They block."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from daemon.errors import LookoutError
from daemon.peers.addresses import DaemonAddress
from daemon.system.http_client import HttpRequest, fetch, unverified_tls

TIMEOUT_S = 10.0


class AwayError(LookoutError):
    """The daemon does not answer, or has no HTTP API."""


@dataclass(frozen=True)
class Answer:
    """An answer of a daemon.

    Attributes:
        headers: names in lower case.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def error(self) -> str:
        """The reason of a refusal."""
        try:
            return msgspec.json.decode(self.body, type=_Refusal).error
        except msgspec.MsgspecError:
            return f"the daemon answers {self.status}"


class _Refusal(msgspec.Struct):
    error: str


class DaemonApi:
    """The HTTP API of one daemon; any thread may use it. Each request has a connection of its own."""

    def __init__(self, address: DaemonAddress) -> None:
        self._address = address
        self._tls: ssl.SSLContext | None = None
        if address.http and address.http.startswith("https:"):
            # The certificate of this machine names the machine, not localhost.
            self._tls = unverified_tls() if address.is_here else ssl.create_default_context()

    @property
    def exists(self) -> bool:
        """Whether the daemon has one that this page may use."""
        return self._address.http is not None and self._address.token is not None

    @property
    def host(self) -> str:
        """Where it is; empty if it does not exist."""
        return urlsplit(self._address.http or "").hostname or ""

    @property
    def tls(self) -> ssl.SSLContext | None:
        """For all that the daemon serves over HTTP; None without TLS."""
        return self._tls

    @property
    def authorization(self) -> Mapping[str, str]:
        """The header with the page's token.

        Raises:
            AwayError: the page has no address or no token.
        """
        address = self._address
        if address.http is None:
            raise AwayError(f"the page does not know the HTTP API of {address.name}: give its http:// address as well")
        if address.token is None:
            raise AwayError(f"the page has no token for the HTTP API of {address.name}: set LOOKOUT_TOKEN")
        return {"Authorization": f"Bearer {address.token.reveal()}"}

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Answer:
        """The answer, whatever its status.

        Args:
            path: below the API's root; its parts are quoted here.
            headers: beside the token's.

        Raises:
            AwayError: there is none.
        """
        address = self._address
        sent = {**self.authorization, **(headers or {})}
        if body is not None:
            sent["Content-Type"] = "application/json"
        target = f"/api/v1/{quote(path)}" + (f"?{urlencode(query)}" if query else "")
        try:
            answer = fetch(str(address.http), HttpRequest(method, target, body or b"", sent), timeout_s, self._tls)
        except (OSError, HTTPException) as error:
            named = error.strerror if isinstance(error, OSError) else None
            reason = named or str(error) or type(error).__name__
            raise AwayError(f"the HTTP API of {address.name} does not answer: {reason}") from error
        return Answer(answer.status, answer.headers, answer.content)
