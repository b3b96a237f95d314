"""The state of a server that lanes share: present or away, and the thread that finds it again."""

from __future__ import annotations

import threading
from collections.abc import Callable

from detectors.port import DetectorError, DetectorUnavailableError
from detectors.triton.http import ServerError

_FIRST_S, _LONGEST_S = 0.1, 1.0  # between two trials
_INTERVAL_S = 5.0


class Server:
    """Lanes report a server that fails. A thread tries it until it works again.

    A present server is asked now and then as well: it may be away while no frame comes, and may load another model.

    Args:
        name: of the model and its server, for messages.
        probe: asks the server for the model's facts.
        trial: does the same and runs the model once.
        interval_s: between two questions to a present server.

        Both raise ServerError if the server is away, and DetectorError if its model is another one now.
    """

    def __init__(
        self, name: str, probe: Callable[[], None], trial: Callable[[], None], interval_s: float = _INTERVAL_S
    ) -> None:
        self._name, self._probe, self._trial, self._interval_s = name, probe, trial, interval_s
        self._lock = threading.Lock()
        self._lost, self._closing = threading.Event(), threading.Event()
        self._reason: str | None = None
        self._changed: str | None = None
        self._found = 0
        self._thread = threading.Thread(target=self._watch, name="triton-server", daemon=True)
        self._thread.start()

    @property
    def unavailable(self) -> str | None:
        """Why the server gives no results now; None if it does."""
        return self._reason

    @property
    def times_found(self) -> int:
        """How often the server came back. After that it knows no region of before."""
        return self._found

    def check(self) -> None:
        """Check that the server is there, without asking it.

        Raises:
            DetectorUnavailableError: it is away.
            DetectorError: it came back with another model.
        """
        if self._changed:
            raise DetectorError(self._changed)
        if reason := self._reason:
            raise DetectorUnavailableError(reason)

    def lost(self, error: ServerError) -> DetectorUnavailableError:
        """Note that the server failed, and start to try it."""
        reason = f"model {self._name}: {error}"
        with self._lock:
            if self._reason is None:
                self._reason = reason
                self._lost.set()
        return DetectorUnavailableError(reason)

    def close(self, timeout_s: float) -> None:
        """End the thread; it may be left in a trial, which has a limit of its own."""
        self._closing.set()
        self._lost.set()
        self._thread.join(timeout_s)

    def _watch(self) -> None:
        while not self._closing.is_set():
            if not self._lost.wait(self._interval_s):
                self._poll()
                continue
            wait_s = _FIRST_S
            while not self._closing.wait(wait_s) and not self._is_back():
                wait_s = min(2 * wait_s, _LONGEST_S)

    def _poll(self) -> None:
        try:
            self._probe()
        except ServerError as error:
            self.lost(error)
        except DetectorError as error:
            self._changed = str(error)

    def _is_back(self) -> bool:
        try:
            self._trial()
        except ServerError as error:
            self._reason = f"model {self._name}: {error}"
            return False
        except DetectorError as error:
            self._changed = str(error)
        with self._lock:
            self._found += 1
            self._lost.clear()
            self._reason = None
        return True
