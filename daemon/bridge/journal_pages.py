"""The events that a daemon keeps, read page by page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

import msgspec

from daemon.peers.api import AwayError, DaemonApi
from lookout.messages import Event

_PAGE = 1000
_TIMEOUT_S = 5.0


class NoJournalError(Exception):
    """The daemon keeps no events."""


class Page(msgspec.Struct, frozen=True):
    """
    Attributes:
        events: in the order of their numbers.
        next: the number up to which the journal is read; of all that is written if there is no `more`.
    """

    events: list[Event]
    next: int
    more: bool

    def ends_at(self, number: int) -> bool:
        """Whether its last event has this number."""
        return bool(self.events) and self.events[-1].number == number


class _RawPage(msgspec.Struct, frozen=True):
    events: list[msgspec.Raw]
    next: int
    more: bool


def _readable(rows: Iterable[msgspec.Raw]) -> Iterator[Event]:
    """Those of a newer daemon may not be; their numbers are missing then."""
    for row in rows:
        with suppress(ValueError):
            yield msgspec.json.decode(row, type=Event)


class JournalPages:
    """Any thread; each call takes a few seconds at most."""

    def __init__(self, api: DaemonApi) -> None:
        self._api = api

    @property
    def exists(self) -> bool:
        """Whether the daemon has an API that may be asked."""
        return self._api.exists

    def after(self, number: int, before: int | None = None) -> Page:
        """Events with a larger number, and a smaller one than `before`.

        Raises:
            AwayError: the daemon does not answer, or refuses.
            NoJournalError: it keeps none.
        """
        query = {"since": str(number), "limit": str(_PAGE), **({"before": str(before)} if before is not None else {})}
        return self._ask(query)

    def newest(self, before: int | None = None) -> Page:
        """The newest event, or the newest with a smaller number; as `after`."""
        return self._ask({"limit": "1", **({"before": str(before)} if before is not None else {})})

    def _ask(self, query: Mapping[str, str]) -> Page:
        answer = self._api.request("GET", "events", query=query, timeout_s=_TIMEOUT_S)
        if answer.status == 404:
            raise NoJournalError(answer.error)
        if answer.status != 200:
            raise AwayError(answer.error)
        try:
            raw = msgspec.json.decode(answer.body, type=_RawPage)
        except ValueError as error:
            raise AwayError(f"the journal's answer is not as Lookout's: {error}") from error
        return Page([*_readable(raw.events)], raw.next, raw.more)
