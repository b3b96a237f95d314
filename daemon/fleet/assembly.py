"""Builds the member of a daemon from the daemon's parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from daemon.analytics.events import EventPublisher
from daemon.config import Config
from daemon.control.admission import Admission
from daemon.control.changes import Changes
from daemon.control.sources import SourceManager
from daemon.fleet.description import Machine, capacity_of, endpoints_of, pictures_of, record_of
from daemon.fleet.grants import GrantedSources
from daemon.fleet.kept_lease import KeptLease
from daemon.fleet.member import Doors, Member, Seat
from daemon.fleet.overload import Overload
from daemon.fleet.own_sources import OwnSources
from daemon.fleet.records import Endpoints, MemberRecord
from daemon.monitoring.monitor import Monitor
from daemon.system.runtime import Runtime
from detectors.port import ModelInfo
from lookoutd.messages import GpuMetrics, Metrics


@dataclass(frozen=True)
class Parts:
    """The parts of a daemon that its member uses.

    Attributes:
        model: the model now.
        endpoint: where messages are published.
        http: its API, None without one.
    """

    changes: Changes
    sources: SourceManager
    events: EventPublisher
    monitor: Monitor
    admission: Admission
    machine: Machine
    overload: Overload
    model: Callable[[], ModelInfo]
    endpoint: str
    http: str | None


def doors_of(config: Config, runtime: Runtime) -> Doors:
    """The coordinator of the configuration, and a keeper for its lease."""
    from daemon.fleet.opening import open_coordinator  # loads no client of another coordinator

    return Doors(
        open=partial(open_coordinator, config.fleet),
        keep=lambda renewal, ttl_s: KeptLease(renewal, ttl_s, runtime.clock),
    )


def make_member(config: Config, grants: GrantedSources, parts: Parts, doors: Doors, runtime: Runtime) -> Member:
    """Raises:
    LookoutError: the coordinator's address or files cannot be used.
    """
    endpoints = endpoints_of(config, parts.endpoint, parts.http)
    own = OwnSources(parts.changes, grants, parts.events.begin, runtime.clock)
    seat = Seat(
        name=grants.member,
        bell=grants.bell,
        grants=grants,
        own=own,
        record=lambda: _record(config, parts, endpoints),
        pictures=lambda: pictures_of(parts.sources.formats),
    )
    return Member(config.fleet, seat, doors, runtime)


def _record(config: Config, parts: Parts, endpoints: Endpoints) -> MemberRecord:
    model, report = parts.model(), parts.monitor.last
    capacity = capacity_of(config, parts.machine, model, _gpu_of(model, report), parts.admission.decoder_cost)
    return record_of(config, parts.overload.lowered(capacity), endpoints, parts.overload.reason)


def _gpu_of(model: ModelInfo, report: Metrics | None) -> GpuMetrics | None:
    gpus = (report.gpus if report else None) or []
    return gpus[model.gpu] if model.gpu is not None and model.gpu < len(gpus) else None
