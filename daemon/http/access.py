"""Access over HTTP: tokens have names and roles, and some answers need none."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request

from daemon.clock import Clock
from daemon.config import HttpConfig, Role, TokenConfig, is_loopback
from daemon.errors import ConfigError
from daemon.redact import Secret

log = structlog.get_logger(__name__)
_LEAST_TOKEN = 16
_TELL_NS = 60_000_000_000
_JSON = ("application/json", "application/merge-patch+json")


@dataclass(frozen=True, slots=True)
class Token:
    """A secret that lets its holder in.

    Attributes:
        name: of the holder, for the log.
    """

    name: str
    role: Role
    secret: Secret


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose request it is."""

    name: str
    role: Role
    peer: str


class Access:
    """Of one daemon.

    Attributes:
        refused: requests without the token they needed.

    Raises:
        ConfigError: a token cannot be read, or is too short to be one.
    """

    def __init__(self, config: HttpConfig, clock: Clock) -> None:
        self._clock = clock
        self._is_local = is_loopback(config.host)
        self._tokens = read_tokens(config)
        self.refused = 0
        self._untold, self._told = 0, -_TELL_NS
        self._lock = threading.Lock()

    def renew(self, config: HttpConfig) -> Callable[[], None]:
        """Read the tokens again; what comes back makes them the ones that count.

        Raises:
            ConfigError: see above.
        """
        tokens = read_tokens(config)

        def renew() -> None:
            self._tokens = tokens

        return renew

    def caller(self, request: Request, role: Role) -> Caller:
        """The holder of the request's token.

        Raises:
            HTTPException: 401 or 403: nobody who may do that.
        """
        found = self._known(request)
        if not self._tokens:
            raise HTTPException(403, "the API needs a token: set http.token, token_file or tokens")
        if found is None:
            raise self._refuse(request)
        if role == "operate" and found.role != "operate":
            raise HTTPException(403, f"the token of {found.name!r} may only view: its role must be operate")
        return found

    def may_see(self, request: Request) -> bool:
        """Figures and reasons: on a loopback address whoever is on this machine, elsewhere whoever has a token.

        A page from elsewhere that had its name point here would send that name.
        """
        return (self._is_local and is_loopback(_host(request))) or self._known(request) is not None

    def check_sees(self, request: Request) -> None:
        """Raises:
        HTTPException: 401, see above.
        """
        if not self.may_see(request):
            raise self._refuse(request)

    def _known(self, request: Request) -> Caller | None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        # All are compared, each in a time that does not tell how much of it was right.
        right = [token for token in self._tokens if _is(token.secret, given.strip())]
        return Caller(right[0].name, right[0].role, _peer(request)) if right else None

    def _refuse(self, request: Request) -> HTTPException:
        """Count it, and tell of it once a minute."""
        now = self._clock.monotonic_ns()
        with self._lock:
            self.refused += 1
            self._untold += 1
            told, count = now - self._told >= _TELL_NS, self._untold
            if told:
                self._told, self._untold = now, 0
        if told:
            log.warning("http: requests without a valid token", count=count, last_peer=_peer(request))
        return HTTPException(401, "a bearer token is needed", {"WWW-Authenticate": "Bearer"})


def read_tokens(config: HttpConfig) -> Sequence[Token]:
    """All that are configured.

    Raises:
        ConfigError: one cannot be read, is too short, or is another's as well.
    """
    rows = list(config.tokens)
    if config.token is not None or config.token_file is not None:
        rows.insert(0, TokenConfig("token", "operate", config.token, config.token_file))
    tokens = [Token(row.name, row.role, _secret(row)) for row in rows]
    if len({token.secret for token in tokens}) < len(tokens):
        raise ConfigError("http.tokens: two of them are the same, so that nobody could tell who it was")
    return tuple(tokens)


def check_body(request: Request) -> None:
    """What a browser sends for a page of somebody else's is not taken.

    Raises:
        HTTPException: 415.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _JSON:
        raise HTTPException(415, "send JSON, with Content-Type: application/json")


def _secret(row: TokenConfig) -> Secret:
    found = row.token
    if row.token_file is not None:
        try:
            found = Secret(row.token_file.read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"http: the token of {row.name!r}: {row.token_file} cannot be read: {error}") from error
    if found is None or len(found.reveal()) < _LEAST_TOKEN:
        raise ConfigError(
            f"http: the token of {row.name!r} is shorter than {_LEAST_TOKEN} characters: "
            "`openssl rand -hex 32` makes one"
        )
    return found


def _is(secret: Secret, given: str) -> bool:
    return hmac.compare_digest(given.encode(), secret.reveal().encode())


def _host(request: Request) -> str:
    """That the client believes to speak to, without the port."""
    host = request.headers.get("host", "")
    return host if host.endswith("]") else host.rpartition(":")[0] or host


def _peer(request: Request) -> str:
    return request.client.host if request.client else "?"
