"""Asks daemons' HTTP APIs for their sources. The event loop's thread alone uses it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from daemon.clock import Clock
from daemon.dashboard.requests import Requests
from daemon.dashboard.watched import Facts, FleetSource, Row, WatchedDaemon
from daemon.peers.api import AwayError

_AT_ONCE = 2  # of a daemon
_MAX_TEXT = 200


class _Fleet(msgspec.Struct):
    """The part of `GET /api/v1/fleet` that is used here."""

    sources: list[FleetSource]


_rows = msgspec.json.Decoder(list[Row]).decode
_facts = msgspec.json.Decoder(Facts).decode
_fleet = msgspec.json.Decoder(_Fleet).decode


class SourcePoller:
    """Asks daemons for their sources and facts."""

    def __init__(self, clock: Clock) -> None:
        self._requests, self._clock = Requests(_AT_ONCE), clock

    async def poll(self, daemon: WatchedDaemon, daemons: Iterable[WatchedDaemon]) -> str | None:
        """Note a daemon's answers; returns why there is none, and then everything that is known stays.

        Args:
            daemons: those that the page shows.
        """
        try:
            facts = await self._requests.send(daemon.api, "GET", "daemon")
            rows = await self._requests.send(daemon.api, "GET", "sources")
            if facts.status == 200:
                daemon.note_facts(_facts(facts.body), self._clock.utc_ns() / 1e9)
            if rows.status == 200:
                daemon.note_rows(_rows(rows.body))
            daemon.note_fleet(await self._of_fleet(daemon, daemons))
        except (AwayError, msgspec.MsgspecError) as error:
            return str(error)[:_MAX_TEXT]
        return None if rows.status == 200 else f"its HTTP API refuses: {rows.error}"

    async def _of_fleet(self, daemon: WatchedDaemon, daemons: Iterable[WatchedDaemon]) -> dict[str, FleetSource] | None:
        """Sources as its fleet knows them, while another member is away; None otherwise."""
        fleet = daemon.facts.fleet
        if fleet is None or all(row.state == "up" for row in daemons if row.facts.fleet == fleet):
            return None
        answer = await self._requests.send(daemon.api, "GET", "fleet")
        return {row.id: row for row in _fleet(answer.body).sources} if answer.status == 200 else None
