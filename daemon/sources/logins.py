"""Logins that several sources share, such as the channels of one recorder: a wrong one is tried by one of them alone.

Sixteen channels that try a wrong password at once lock the account as surely as one that tries it sixteen times.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from urllib.parse import urlsplit

import av.error

from daemon.config.sources import AvConfig
from daemon.errors import LoginRefusedError

_REFUSED_S = 30.0  # other sources do not try a login that was refused so recently


@dataclass
class _Login:
    """The state of one.

    Attributes:
    is_good: it was accepted, and not refused since.
    refused_by: the source that was refused last, and when, seconds.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)  # held by the source that tries it first
    is_good: bool = False
    refused_by: tuple[str, float] | None = None


class Logins:
    """The logins of a process. Safe to use from every thread."""

    def __init__(self) -> None:
        self._logins: dict[tuple[str, ...], _Login] = {}

    @contextmanager
    def attempt(self, config: AvConfig) -> Iterator[None]:
        """Around the opening of a source: one that shares a login which has not been accepted yet waits for the other.

        Raises:
            LoginRefusedError: another source was refused with it just now.
        """
        login = self._login_of(config)
        if login is None:
            yield
            return
        with _turn(login, config.open_timeout_s):
            by, when = login.refused_by or (config.id, 0.0)
            if by != config.id and monotonic() - when < _REFUSED_S:
                raise LoginRefusedError(f"{config.url} is not tried: its server has just refused this login to {by}")
            yield from self._try(config, login)

    def _try(self, config: AvConfig, login: _Login) -> Iterator[None]:
        try:
            yield
        except LoginRefusedError as error:
            # 403 is about what a user may see: with the same login, another source may see what it asks for.
            if not isinstance(error.__cause__, av.error.HTTPForbiddenError):
                login.is_good, login.refused_by = False, (config.id, monotonic())
            raise
        login.is_good, login.refused_by = True, None

    def _login_of(self, config: AvConfig) -> _Login | None:
        """None for a source without user name and password."""
        parts = urlsplit(config.address)
        if parts.username is None:
            return None
        key = parts.scheme, parts.netloc
        return self._logins.setdefault(key, _Login())


@contextmanager
def _turn(login: _Login, timeout_s: float) -> Iterator[None]:
    """Wait for the source that tries a login first; no longer than that may take, and not once it is accepted."""
    has_lock = not login.is_good and login.lock.acquire(timeout=timeout_s)
    try:
        if has_lock and login.is_good:  # accepted meanwhile
            login.lock.release()
            has_lock = False
        yield
    finally:
        if has_lock:
            login.lock.release()


LOGINS = Logins()
