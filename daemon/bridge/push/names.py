"""Names are looked up in threads that can be left: the system's own lookup has no limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from daemon.system.http_client import SocketAddress, system_lookup

Lookup = Callable[[str, int, float], Sequence[SocketAddress]]
_FOR_EVER_S = float("inf")


class Names:
    """One lookup of a name at a time: another caller waits for the same one, so that lookups that hang do not pile up.
    Any thread."""

    def __init__(self, lookup: Lookup = system_lookup) -> None:
        self._lookup = lookup
        self._lock = threading.Lock()
        self._pending: dict[tuple[str, int], Future[Sequence[SocketAddress]]] = {}

    def find(self, host: str, port: int) -> Future[Sequence[SocketAddress]]:
        """The addresses; OSError where there are none. Nothing is kept for a later call."""
        with self._lock:
            found = self._pending.get((host, port))
            if found is None:
                found = self._pending[host, port] = Future()
                threading.Thread(target=self._run, args=(host, port, found), name="lookup", daemon=True).start()
            return found

    def _run(self, host: str, port: int, found: Future[Sequence[SocketAddress]]) -> None:
        try:
            rows = self._lookup(host, port, _FOR_EVER_S)
        except (OSError, UnicodeError) as error:  # UnicodeError: a part of the name is too long
            self._forget(host, port)
            found.set_exception(error if isinstance(error, OSError) else OSError(f"{host} is no name"))
        else:
            self._forget(host, port)
            found.set_result(rows)

    def _forget(self, host: str, port: int) -> None:
        with self._lock:
            del self._pending[host, port]


SYSTEM = Names()
