"""Metrics of a fleet, as one of its members sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from daemon.fleet.figures import FleetParts, OwnFigures, StatusCache
from daemon.fleet.status import FleetStatus, RowState, SourceState

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class FleetExposition:
    """Members and sources of the whole fleet are in the figures of every member: an alert takes their maximum."""

    def __init__(self, parts: FleetParts) -> None:
        self._parts, self._cache = parts, StatusCache(parts)

    def collect(self) -> Iterator[Metric]:
        yield from _own(self._parts.own())
        yield from self._placer()
        if (status := self._cache.get()) is not None:
            yield from _fleet(status)

    def _placer(self) -> Iterator[Metric]:
        placer = self._parts.placer
        counts = placer.counts
        yield GaugeMetricFamily("lookout_fleet_placer", "1 if this member is the placer.", placer.leads)
        failing = counts.failure is not None
        yield GaugeMetricFamily("lookout_fleet_placer_failing", "1 if its last attempt failed.", failing)
        yield GaugeMetricFamily("lookout_fleet_placement_seconds", "Time of its last placement.", counts.seconds)
        text = "Sources that it has placed, because their member was gone."
        yield CounterMetricFamily("lookout_fleet_failovers", text, value=counts.failed_over)
        yield CounterMetricFamily("lookout_fleet_members_lost", "Losses that it has counted.", value=counts.losses)


def _own(own: OwnFigures) -> Iterator[Metric]:
    yield GaugeMetricFamily("lookout_fleet_coordinator_up", "1 if the coordinator answers.", own.coordinator_up)
    yield GaugeMetricFamily("lookout_fleet_member", "1 if this daemon is a member.", own.lease != "none")
    yield GaugeMetricFamily("lookout_fleet_sources_owned", "Sources of this member.", own.owned)
    if own.lease_age_s is not None:
        text = "Since the lease was last renewed."
        yield GaugeMetricFamily("lookout_fleet_lease_age_seconds", text, own.lease_age_s)
    if own.lease_valid_s is not None:
        text = "Until the lease ends, as far as was confirmed."
        yield GaugeMetricFamily("lookout_fleet_lease_valid_seconds", text, own.lease_valid_s)


def _fleet(status: FleetStatus) -> Iterator[Metric]:
    members = GaugeMetricFamily("lookout_fleet_members", "Members of the fleet.", labels=["state"])
    states = Counter(row.state for row in status.members)
    for state in get_args(RowState):
        members.add_metric([state], states[state])
    sources = GaugeMetricFamily("lookout_fleet_sources", "Sources of the fleet.", labels=["state"])
    found = Counter(row.state for row in status.sources)
    for state in get_args(SourceState):
        sources.add_metric([state], found[state])
    losses = GaugeMetricFamily("lookout_fleet_member_losses", "Losses within an hour.", labels=["member"])
    shares = GaugeMetricFamily("lookout_fleet_member_use", "Share that sources take.", labels=["member", "resource"])
    for row in status.members:
        losses.add_metric([row.name], row.losses)
        for resource, share in row.usage.items():
            shares.add_metric([row.name, resource], share)
    text = "Records that cannot be read."
    unreadable = GaugeMetricFamily("lookout_fleet_unreadable_records", text, len(status.problems))
    yield from (members, sources, losses, shares, unreadable)
