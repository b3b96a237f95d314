"""Access control of the API: tokens have names and roles; some answers need no token."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request

from daemon.clock import Clock
from daemon.config.http import HttpConfig, Role, TokenConfig, is_loopback
from daemon.errors import ConfigError
from daemon.files import read_text
from daemon.redact import Secret

log = structlog.get_logger(__name__)
Right = Literal["public", "local", "view", "operate"]
"""`local` needs a token unless the client is on this machine; `view` and `operate` are roles of tokens."""
_MIN_TOKEN_LENGTH = 16
_PLACEHOLDER = "replace-me"  # of deploy/kubernetes and its neighbours
_WARN_INTERVAL_NS = 60_000_000_000
_JSON = ("application/json", "application/merge-patch+json")


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token.

    Attributes:
        name: of its holder, for the log.
    """

    name: str
    role: Role
    secret: Secret


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request."""

    name: str
    role: Role
    peer: str


class Access:
    """Checks the tokens of requests.

    Attributes:
        refused: number of requests without a valid token.

    Raises:
        ConfigError: a token cannot be read, or is too short.
    """

    def __init__(self, config: HttpConfig, clock: Clock) -> None:
        self._clock = clock
        self._is_local = is_loopback(config.host)
        self._tokens = read_tokens(config)
        self.refused = 0
        self._unreported, self._warned_ns = 0, -_WARN_INTERVAL_NS
        self._lock = threading.Lock()

    def reload(self, config: HttpConfig) -> Callable[[], bool]:
        """Read the tokens again; the function that it returns puts them into use, and says whether they differ.

        Raises:
            ConfigError: as in the constructor.
        """
        tokens = read_tokens(config)

        def reload() -> bool:
            before, self._tokens = self._tokens, tokens
            return before != tokens

        return reload

    def admit(self, request: Request, right: Right) -> None:
        """Let a request through, and note its caller for `caller_of` where a role is needed.

        Raises:
            HTTPException: 401 or 403: the request has no token that gives the right.
        """
        if right == "local":
            self._check_may_view(request)
        elif right != "public":
            request.scope["caller"] = self._holder(request, right)

    def _holder(self, request: Request, role: Role) -> Caller:
        found = self._caller_of(request)
        if not self._tokens:
            raise HTTPException(403, "the API needs a token: set http.token, token_file or tokens")
        if found is None:
            raise self._refuse(request)
        if role == "operate" and found.role != "operate":
            raise HTTPException(403, f"the token of {found.name!r} may only view: its role must be operate")
        return found

    def may_view(self, request: Request) -> bool:
        """Whether a request may see metrics and reasons: on a loopback address every local client, otherwise only with
        a token. A web page whose own host name resolves to this machine sends that name, and is refused."""
        return (self._is_local and is_loopback(host_of(request))) or self._caller_of(request) is not None

    def _check_may_view(self, request: Request) -> None:
        if not self.may_view(request):
            raise self._refuse(request)

    def _caller_of(self, request: Request) -> Caller | None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        found = holder_of(self._tokens, given.strip())
        return Caller(found.name, found.role, peer_of(request)) if found else None

    def _refuse(self, request: Request) -> HTTPException:
        """Count a refusal, and log refusals once a minute."""
        now = self._clock.monotonic_ns()
        with self._lock:
            self.refused += 1
            self._unreported += 1
            warn, count = now - self._warned_ns >= _WARN_INTERVAL_NS, self._unreported
            if warn:
                self._warned_ns, self._unreported = now, 0
        if warn:
            log.warning("http: requests without a valid token", count=count, last_peer=peer_of(request))
        is_given = request.headers.get("authorization", "").partition(" ")[0].lower() == "bearer"
        words = "the token is none of this daemon's" if is_given else "a bearer token is needed"
        return HTTPException(401, words, {"WWW-Authenticate": "Bearer"})


def caller_of(request: Request) -> Caller:
    """The caller that `Access.admit` found; there is one where a role is needed."""
    found: Caller = request.scope["caller"]
    return found


def read_tokens(config: HttpConfig) -> Sequence[Token]:
    """All configured tokens.

    Raises:
        ConfigError: a token cannot be read, is too short, a placeholder, or occurs twice.
    """
    rows = list(config.tokens)
    if config.token is not None or config.token_file is not None:
        rows.insert(0, TokenConfig("token", "operate", config.token, config.token_file))
    return tokens_of(rows, "http")


def tokens_of(rows: Sequence[TokenConfig], where: str) -> Sequence[Token]:
    """The tokens of a section of the configuration.

    Raises:
        ConfigError: as `read_tokens`.
    """
    tokens = [Token(row.name, row.role, _secret(row, where)) for row in rows]
    if len({token.secret for token in tokens}) < len(tokens):
        raise ConfigError(f"{where}.tokens: two tokens are equal, so that their holders cannot be told apart")
    return tuple(tokens)


def holder_of(tokens: Sequence[Token], given: str) -> Token | None:
    """The token that was given; compares all tokens in constant time."""
    right = [token for token in tokens if _matches(token.secret, given)]
    return right[0] if right else None


def check_body(request: Request) -> None:
    """Refuse requests that a web page of another origin can make a browser send.

    Raises:
        HTTPException: 415.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _JSON:
        raise HTTPException(415, "send JSON, with Content-Type: application/json")


def _secret(row: TokenConfig, where: str) -> Secret:
    found = None if row.token is None else Secret(row.token.reveal().strip())  # clients send it without a line's end
    if row.token_file is not None:
        try:
            found = Secret(read_text(row.token_file).strip())
        except OSError as error:
            raise ConfigError(
                f"{where}: the token of {row.name!r}: {row.token_file} cannot be read: {error.strerror}"
            ) from error
    if found is None or len(found.reveal()) < _MIN_TOKEN_LENGTH:
        raise ConfigError(
            f"{where}: the token of {row.name!r} is shorter than {_MIN_TOKEN_LENGTH} characters: "
            "`openssl rand -hex 32` makes one"
        )
    if found.reveal().lower().startswith(_PLACEHOLDER):
        raise ConfigError(
            f"{where}: the token of {row.name!r} is the placeholder of an example, which everybody knows: "
            "`openssl rand -hex 32` makes one"
        )
    return found


def _matches(secret: Secret, given: str) -> bool:
    return hmac.compare_digest(given.encode(), secret.reveal().encode())


def host_of(request: HTTPConnection) -> str:
    """The host name that the client used, without the port."""
    host = request.headers.get("host", "")
    return host if host.endswith("]") else host.rpartition(":")[0] or host


def peer_of(request: HTTPConnection) -> str:
    """The client's address."""
    return request.client.host if request.client else "?"
