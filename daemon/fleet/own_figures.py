"""The figures of a member, from its parts."""

from __future__ import annotations

from daemon.clock import boottime_ns
from daemon.fleet.figures import FleetParts, OwnFigures
from daemon.fleet.grants import GrantedSources
from daemon.fleet.lease_page import MARGIN_S
from daemon.fleet.member import Member
from daemon.fleet.placer import Placer
from daemon.fleet_config import FleetConfig


def parts_of(config: FleetConfig, member: Member, grants: GrantedSources, placer: Placer) -> FleetParts:
    """The parts that HTTP shows."""
    return FleetParts(
        name=config.name,
        view=lambda: member.view,
        open=member.connect,
        own=lambda: _figures(config, member, grants),
        placer=placer,
    )


def _figures(config: FleetConfig, member: Member, grants: GrantedSources) -> OwnFigures:
    lease = member.lease
    valid_s = None if lease is None else (lease.valid_until - boottime_ns()) / 1e9
    return OwnFigures(
        member=grants.member,
        coordinator_up=lease.state == "renewed" if lease else member.failure is None and member.view is not None,
        lease=lease.state if lease else "none",
        lease_age_s=None if valid_s is None else max(0.0, config.ttl_s - MARGIN_S - valid_s),
        lease_valid_s=valid_s,
        owned=len(grants.grants()),
        problem=member.condition,
    )
