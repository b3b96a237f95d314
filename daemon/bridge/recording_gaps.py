"""The seconds that recordings lack: read from a daemon's figures, and counted since the last notice.

The wire tells of stores and of the clips that events want, and not of the rest of a recording. The daemon's counters
`lookout_recording_gap_seconds` have all of it, by source, store and cause, in one request.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from http.client import HTTPException
from typing import Final

import msgspec

from daemon.peers.addresses import DaemonAddress
from daemon.peers.api import AwayError, DaemonApi
from daemon.system.http_client import HttpRequest, fetch

Gaps = Mapping[tuple[str, str], Mapping[str, float]]
"""Seconds that are not on disk, by cause, of each source and store since the daemon began."""
INTERVAL_S: Final = 30.0
"""Between two readings."""
_ASKED_FOR: Final = ("off", "no_event", "fenced", "clock")  # nothing is missing that was wanted
_TIMEOUT_S: Final = 10.0
_ROW: Final = re.compile(rb"^lookout_recording_gap_seconds_total\{([^}\n]*)\} (\S+)", re.MULTILINE)
_LABEL: Final = re.compile(rb'(\w+)="([^"]*)"')


def read_gaps(address: DaemonAddress, api: DaemonApi) -> Gaps:
    """The counters of a daemon; empty for one that records nothing.

    Raises:
        AwayError: it does not answer, or refuses.
    """
    request = HttpRequest("GET", "/metrics", b"", api.authorization)
    try:
        answer = fetch(str(address.http), request, _TIMEOUT_S, api.tls)
    except (OSError, HTTPException) as error:
        raise AwayError(f"the figures of {address.name} do not come: {error}") from error
    if answer.status != 200:
        raise AwayError(f"the figures of {address.name} do not come: it answers {answer.status}")
    return parse_gaps(answer.content)


class StoreRow(msgspec.Struct, frozen=True):
    """The part of a store in `GET /api/v1/daemon` that is used here."""

    name: str
    cause: str | None
    reason: str | None


class _Facts(msgspec.Struct, frozen=True):
    stores: list[StoreRow] = []


def read_stores(address: DaemonAddress, api: DaemonApi) -> list[StoreRow]:
    """The stores of a daemon as they are now.

    Raises:
        AwayError: it does not answer, or not as it should.
    """
    answer = api.request("GET", "daemon", timeout_s=_TIMEOUT_S)
    if answer.status != 200:
        raise AwayError(f"the stores of {address.name} are not known: {answer.error}")
    try:
        return msgspec.json.decode(answer.body, type=_Facts).stores
    except msgspec.MsgspecError as error:
        raise AwayError(f"the stores of {address.name} are not known: {error}") from error


def parse_gaps(text: bytes) -> dict[tuple[str, str], dict[str, float]]:
    """The counters in Prometheus's text, but for gaps that were asked for; what is no number is left out."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for labels, value in _ROW.findall(text):
        row = {name.decode(): content.decode(errors="replace") for name, content in _LABEL.findall(labels)}
        if not {"source", "store", "cause"} <= row.keys():
            continue
        causes = found.setdefault((row["source"], row["store"]), {})
        try:
            seconds = float(value)
        except ValueError:
            continue
        if row["cause"] not in _ASKED_FOR and 0 < seconds < float("inf"):
            causes[row["cause"]] = seconds
    return found


class KeptGaps(msgspec.Struct, frozen=True):
    """The counters of a source in a store, as a restart of the bridge keeps them.

    Attributes:
        seen: the last ones, seconds by cause.
        lacks: since the last notice, seconds by cause.
        since: UTC ns of the first of it; 0 if nothing lacks.
    """

    source: str
    store: str
    seen: dict[str, float]
    lacks: dict[str, float] = {}
    since: int = 0


class GapCount:
    """One source in one store, since the last notice.

    Attributes:
        since: UTC ns when the first of it was seen; 0 if nothing lacks.
    """

    def __init__(self, seen: Mapping[str, float], lacks: Mapping[str, float] | None = None, since: int = 0) -> None:
        self._seen, self._lacks, self.since = dict(seen), Counter(lacks or {}), since

    def add(self, now: Mapping[str, float], utc_ns: int, *, is_told: bool) -> float:
        """Newer counters; returns the seconds that they have more. A counter that fell began again, at 0.

        Args:
            is_told: a notice tells of this time already: it is not counted.
        """
        grown = {cause: _grown(seconds, self._seen.get(cause, 0.0)) for cause, seconds in now.items()}
        self._seen = dict(now)
        if is_told:
            self.forget()
        elif any(grown.values()):
            self.since = self.since or utc_ns
            self._lacks.update({cause: seconds for cause, seconds in grown.items() if seconds})
        return sum(grown.values())

    @property
    def seconds(self) -> float:
        """That lack since the last notice."""
        return float(sum(self._lacks.values()))

    def forget(self) -> None:
        """It was told."""
        self._lacks.clear()
        self.since = 0

    def words(self, store: str) -> str:
        """Seconds, store and causes."""
        causes = ", ".join(f"{cause} {seconds:.0f} s" for cause, seconds in self._lacks.most_common())
        return f"{self.seconds:.0f} s are not on disk in store {store}: {causes}"

    def keep(self, source: str, store: str) -> KeptGaps:
        """For a restart."""
        return KeptGaps(source, store, self._seen, dict(self._lacks), self.since)


def _grown(now: float, before: float) -> float:
    return now - before if now >= before else now
