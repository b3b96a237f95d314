"""Sources of a fleet: each one is shown once, as its owner has it. A member that is away still has what it had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from daemon.dashboard.watched import FleetSource, WatchedDaemon


def joined(daemons: Sequence[WatchedDaemon]) -> list[dict[str, Any]]:
    """The sources of these daemons, as `GET /api/sources` shows them. Daemons that share no sources may have some of
    the same name."""
    found: list[dict[str, Any]] = []
    best: dict[tuple[str, str], tuple[bool, int, WatchedDaemon]] = {}
    for daemon in daemons:
        for id in daemon.sources:
            if daemon.facts.fleet is None:
                found.append(_shown(daemon, id))
                continue
            key, rank = (daemon.facts.fleet, id), (daemon.state == "up", daemon.epoch(id), daemon)
            if key not in best or rank[:2] > best[key][:2]:
                best[key] = rank
    known = {daemon.facts.fleet: daemon.in_fleet for daemon in daemons if daemon.state == "up" and daemon.in_fleet}
    for (fleet, id), (is_up, _, daemon) in best.items():
        rows = known.get(fleet)
        if is_up or rows is None:
            found.append(_shown(daemon, id))
        elif id in rows:  # nobody has it now; one that the fleet does not know is removed
            found.append({**_shown(daemon, id), "reason": _reason(daemon, rows[id])})
    return found


def _shown(daemon: WatchedDaemon, id: str) -> dict[str, Any]:
    row = daemon.source(id)
    assert row is not None  # noqa: S101 - the daemon has just named it
    return row


def _reason(daemon: WatchedDaemon, row: FleetSource) -> str:
    of_fleet = f": {row.reason}" if row.reason else ""
    return f"{daemon.name}, which had it, is away, and no other member has it yet{of_fleet}"
