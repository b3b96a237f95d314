"""Pictures of events, from the daemons that have them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from time import monotonic

import msgspec

from daemon.bridge.records import Picture, Record
from daemon.clock import Clock, SystemClock
from daemon.peers.api import Answer, AwayError, DaemonApi
from daemon.redact import printable
from lookout.messages import Event

MAX_BYTES = 5 << 20  # of a picture; Telegram takes 10 MB, ntfy.sh 2 MB
_ROOT = "/api/v1/"
_WIDTHS = (1280, 640)  # pixels; the second where the first has too many bytes
_SOON = (404, 503)  # it may not be written yet; too many others ask
_PAUSE_S = 0.1
_LEAST_S = 0.2


class EventPictures:
    """Asks the daemons for the pictures of events. Any thread.

    Args:
        apis: by the names of daemons.
    """

    def __init__(self, apis: Mapping[str, DaemonApi], clock: Clock | None = None) -> None:
        self._apis, self._clock = apis, clock or SystemClock()
        self._is_closed = threading.Event()

    def get(self, record: Record, seconds: float) -> Picture | None:
        """The picture of an event, which may be a moment behind it, or the reason why there is none.

        Args:
            seconds: at most.

        Returns:
            None where none is to be expected: of what is no event, and of events that have none.
        """
        path = _path(record)
        if path is None:
            return None
        api = self._apis.get(record.daemon)
        if api is None or not api.exists:
            return Picture(None, f"the bridge does not know the HTTP API of {record.daemon}, or has no token for it")
        until, picture = monotonic() + seconds, Picture(None, "it was not asked for in time")
        for width in _WIDTHS:
            picture, is_too_large = self._asked(api, path, width, until)
            if not is_too_large:
                break
        return picture

    def close(self) -> None:
        """Nothing is waited for any more."""
        self._is_closed.set()

    def _asked(self, api: DaemonApi, path: str, width: int, until: float) -> tuple[Picture, bool]:
        """A picture or the reason, and whether it had too many bytes."""
        while True:
            try:
                left_s = max(until - monotonic(), _LEAST_S)
                answer = api.request("GET", path, query={"width": str(width)}, timeout_s=left_s)
            except AwayError as error:
                return Picture(None, printable(str(error))), False
            if answer.status == 200:
                return _picture(answer)
            is_over = monotonic() + _PAUSE_S >= until
            if answer.status not in _SOON or is_over or self._clock.wait(self._is_closed, _PAUSE_S):
                return Picture(None, f"it is not there: {printable(answer.error)}"), False


def _picture(answer: Answer) -> tuple[Picture, bool]:
    if len(answer.body) > MAX_BYTES:
        return Picture(None, f"it has more than {MAX_BYTES >> 20} MiB"), True
    if not answer.body.startswith(b"\xff\xd8"):
        return Picture(None, "the daemon's answer is no picture"), False
    return Picture(answer.body), False


def _path(record: Record) -> str | None:
    """Below the API's root; None without a picture."""
    if record.kind != "event":
        return None
    try:
        message = record.message
    except msgspec.MsgspecError:
        return None
    path = message.snapshot if isinstance(message, Event) else None
    return path.removeprefix(_ROOT) if path and path.startswith(f"{_ROOT}events/") else None
