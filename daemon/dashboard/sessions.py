"""Access to the page: tokens, the browser's cookie, and limits on attempts."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from daemon.clock import Clock
from daemon.config.http import DashboardConfig, Role
from daemon.http.access import Token, holder_of, tokens_of

log = structlog.get_logger(__name__)
MAX_AGE_S = 30 * 24 * 3600
_MAX_SESSIONS = 1000  # the longest unused one goes first
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
    person: Person
    until_ns: int


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
        ConfigError: a token cannot be read, or is too short.
    """

    def __init__(self, config: DashboardConfig, clock: Clock) -> None:
        self._tokens: Sequence[Token] = tokens_of(config.tokens, "dashboard")
        self._clock = clock
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        now = clock.monotonic_ns()
        self._all = _Attempts(_ALL_ATTEMPTS, _ALL_PER_ATTEMPT_S, now)
        self._addresses: OrderedDict[str, _Attempts] = OrderedDict()
        self._refused, self._warned_ns = 0, now - _WARN_EVERY_NS

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

    def login(self, given: str, peer: str) -> str | None:
        """The cookie of a new session; None if the token is wrong."""
        found = holder_of(self._tokens, given)
        if found is None:
            self._note_refusal(peer)
            return None
        cookie = secrets.token_urlsafe(32)
        until = self._clock.monotonic_ns() + MAX_AGE_S * 1_000_000_000
        self._sessions[_key(cookie)] = _Session(Person(found.name, found.role), until)
        if len(self._sessions) > _MAX_SESSIONS:
            self._sessions.popitem(last=False)
        log.info("somebody logged in", by=found.name, role=found.role, peer=peer)
        return cookie

    def logout(self, cookie: str) -> None:
        self._sessions.pop(_key(cookie), None)

    def person(self, cookie: str | None) -> Person | None:
        """The holder of a cookie; None if it is of no session."""
        if not self._tokens:
            return Person("this machine", "operate")
        key = _key(cookie or "")
        found = self._sessions.get(key)
        if found is None:
            return None
        if self._clock.monotonic_ns() > found.until_ns:
            del self._sessions[key]
            return None
        self._sessions.move_to_end(key)
        return found.person

    def _note_refusal(self, peer: str) -> None:
        """Count it, and log once a minute."""
        self._refused += 1
        now = self._clock.monotonic_ns()
        if now - self._warned_ns >= _WARN_EVERY_NS:
            log.warning("logins with a wrong token", count=self._refused, last_peer=peer)
            self._refused, self._warned_ns = 0, now


def _key(cookie: str) -> bytes:
    """Sessions are found by a digest, whose comparison tells nothing about a cookie."""
    return hashlib.sha256(cookie.encode(errors="replace")).digest()
