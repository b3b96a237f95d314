"""Access to the page: tokens, the browser's cookie, and limits on attempts.

A session is known by a digest of its cookie, and has a proof: HMAC-SHA256 of the token's text, with the cookie as the
key. It is compared when a cookie is used: a token that was changed or removed ends its sessions, and a role is that of
the token now.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from daemon.clock import Clock
from daemon.config.http import DashboardConfig, Role
from daemon.dashboard.session_file import KeptSession, SessionKeeper, session_file_of
from daemon.http.access import Token, holder_of, tokens_of

log = structlog.get_logger(__name__)
MAX_AGE_S = 365 * 24 * 3600  # since it began
_MAX_IDLE_S = 30 * 24 * 3600
_MAX_SESSIONS, _MAX_OF_TOKEN = 1000, 250  # the longest unused one goes first
_SEEN_S = 3600.0  # between two notes that a session is used
_RETRY_S = 60.0
_CLOCK_BACK_S = 24 * 3600.0  # a session that was seen later than this from now is refused until the clock is right
_ATTEMPTS, _PER_ATTEMPT_S = 5, 10.0  # of an address: at once, and one more each
_ALL_ATTEMPTS, _ALL_PER_ATTEMPT_S = 50, 1.0  # of all addresses together
_MAX_ADDRESSES = 4096
_WARN_EVERY_NS = 60_000_000_000


@dataclass(frozen=True)
class Person:
    """The sender of a request.

    Attributes:
        name: of the token, for the log.
    """

    name: str
    role: Role

    @property
    def may_operate(self) -> bool:
        return self.role == "operate"


@dataclass
class _Session:
    """Attributes:
    name: of its token.
    begun, seen: UTC, s.
    ended: set when it is over.
    """

    name: str
    proof: str
    begun: float
    seen: float
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class _Attempts:
    """A token bucket."""

    def __init__(self, limit: int, seconds: float, now: int) -> None:
        self._limit, self._step = float(limit), seconds * 1e9
        self._left, self._at = float(limit), now

    def wait_s(self, now: int) -> float:
        """Spend one attempt; seconds until the next is allowed, 0 if this one is."""
        self._left = min(self._limit, self._left + (now - self._at) / self._step)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) * self._step / 1e9


class Sessions:
    """Logs people in. The event loop's thread alone uses it.

    Without a token, which is possible on a loopback address alone, everybody on this machine may operate.

    Raises:
        ConfigError: a token cannot be read, or is too short; the file of sessions is refused.
    """

    def __init__(self, config: DashboardConfig, clock: Clock) -> None:
        tokens: Sequence[Token] = tokens_of(config.tokens, "dashboard")
        self._tokens = {token.name: token for token in tokens}
        self._clock = clock
        now = clock.monotonic_ns()
        self._now_s, self._now_ns = clock.utc_ns() / 1e9, now
        self._sessions: OrderedDict[str, _Session] = OrderedDict()  # by digest of the cookie
        self._is_dirty = self._has_ended = False
        self._retry_s = 0.0  # after a write that failed, UTC
        self._keeper = self._opened(config)
        self._saving: asyncio.Task[bool] | None = None
        self._all = _Attempts(_ALL_ATTEMPTS, _ALL_PER_ATTEMPT_S, now)
        self._addresses: OrderedDict[str, _Attempts] = OrderedDict()
        self._refused, self._warned_ns = 0, now - _WARN_EVERY_NS

    def _opened(self, config: DashboardConfig) -> SessionKeeper | None:
        file = session_file_of(config)
        if file is None:
            return None
        try:
            rows = file.read()
        except BaseException:
            file.close()
            raise
        for row in sorted(rows, key=lambda row: row.seen)[-_MAX_SESSIONS:]:
            if row.name in self._tokens:
                self._sessions[row.key] = _Session(row.name, row.proof, row.begun, row.seen)
        return SessionKeeper(file)

    @property
    def needs_login(self) -> bool:
        return bool(self._tokens)

    def wait_s(self, peer: str) -> float:
        """Count an attempt to log in; seconds to wait if there were too many, otherwise 0."""
        now = self._clock.monotonic_ns()
        attempts = self._addresses.pop(peer, None) or _Attempts(_ATTEMPTS, _PER_ATTEMPT_S, now)
        self._addresses[peer] = attempts
        if len(self._addresses) > _MAX_ADDRESSES:
            self._addresses.popitem(last=False)
        return attempts.wait_s(now) or self._all.wait_s(now)

    async def login(self, given: str, peer: str) -> str | None:
        """The cookie of a new session; None if the token is wrong."""
        found = holder_of([*self._tokens.values()], given)
        if found is None:
            self._note_refusal(peer)
            return None
        cookie = secrets.token_urlsafe(32)
        now = self._now()
        self._sessions[_key(cookie)] = _Session(found.name, _proof(cookie, found), now, now)
        of_token = [key for key, session in self._sessions.items() if session.name == found.name]
        for key in of_token[:-_MAX_OF_TOKEN]:
            self._end(key)
        if len(self._sessions) > _MAX_SESSIONS:
            self._end(next(iter(self._sessions)))
        log.info("somebody logged in", by=found.name, role=found.role, peer=peer)
        self._is_dirty = True
        await self._keep()
        return cookie

    async def logout(self, cookie: str) -> bool:
        """End a session, and all that goes on in it; whether that outlives a restart as well."""
        if self._verified(cookie) is None:
            return True
        self._end(_key(cookie))
        return await self._keep()

    def person(self, cookie: str | None) -> Person | None:
        """The holder of a cookie; None if it is of no session."""
        if not self._tokens:
            return Person("this machine", "operate")
        session = self._verified(cookie or "")
        if session is None:
            return None
        token, now = self._tokens[session.name], self._now()
        self._sessions.move_to_end(_key(cookie or ""))
        if now - session.seen > _SEEN_S:
            session.seen = now
            self._is_dirty = True
        return Person(token.name, token.role)

    async def wait_end(self, cookie: str | None) -> None:
        """Wait until the session of a cookie is over. Where nobody signs in, that is never."""
        session = self._sessions.get(_key(cookie or ""))
        if session is not None:
            await session.ended.wait()
        elif not self._tokens:
            await asyncio.Event().wait()

    def keep_soon(self) -> None:
        """Write what has changed, without waiting for it."""
        is_idle = self._saving is None or self._saving.done()
        if (self._is_dirty or self._has_ended) and self._keeper and is_idle and self._now() >= self._retry_s:
            self._saving = asyncio.ensure_future(self._keep())

    def close(self) -> None:
        """Leave the file, whose sessions stay."""
        if self._keeper is not None:
            self._keeper.close()

    def _verified(self, cookie: str) -> _Session | None:
        """The session of a cookie, if it is over for no reason."""
        key = _key(cookie)
        session = self._sessions.get(key)
        if session is None:
            return None
        token, now = self._tokens.get(session.name), self._now()
        is_over = now - session.seen > _MAX_IDLE_S or now - session.begun > MAX_AGE_S
        if token is None or is_over or not hmac.compare_digest(session.proof, _proof(cookie, token)):
            self._end(key)
            return None
        return None if now < max(session.seen, session.begun) - _CLOCK_BACK_S else session

    def _end(self, key: str) -> None:
        self._sessions.pop(key).ended.set()
        self._has_ended = True

    def _now(self) -> float:
        """UTC, s, that never goes back while this process lives."""
        ns = self._clock.monotonic_ns()
        self._now_s = max(self._clock.utc_ns() / 1e9, self._now_s + (ns - self._now_ns) / 1e9)
        self._now_ns = ns
        return self._now_s

    async def _keep(self) -> bool:
        if self._keeper is None:
            return True
        ending = self._has_ended
        self._is_dirty = self._has_ended = False
        rows = [
            KeptSession(key, row.name, row.proof, int(row.begun), int(row.seen)) for key, row in self._sessions.items()
        ]
        is_kept = await self._keeper.keep(rows, ending=ending)
        if not is_kept:
            self._is_dirty, self._has_ended = True, self._has_ended or ending
            self._retry_s = self._now() + _RETRY_S
        return is_kept

    def _note_refusal(self, peer: str) -> None:
        """Count it, and log once a minute."""
        self._refused += 1
        now = self._clock.monotonic_ns()
        if now - self._warned_ns >= _WARN_EVERY_NS:
            log.warning("logins with a wrong token", count=self._refused, last_peer=peer)
            self._refused, self._warned_ns = 0, now


def _key(cookie: str) -> str:
    """Sessions are found by a digest, whose comparison tells nothing about a cookie."""
    return hashlib.sha256(cookie.encode(errors="replace")).hexdigest()


def _proof(cookie: str, token: Token) -> str:
    return hmac.new(cookie.encode(errors="replace"), token.secret.reveal().encode(), hashlib.sha256).hexdigest()
