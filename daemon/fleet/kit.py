"""Attaches a daemon to its fleet: the fence, the member, and the placer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from daemon.clock import Clock
from daemon.config.root import Config
from daemon.control.capacity import SourceCosts
from daemon.fleet.description import Machine, capacity_of, endpoints_of, lowered, pictures_of, record_of
from daemon.fleet.figures import FleetParts
from daemon.fleet.grants import GrantedSources
from daemon.fleet.kept_lease import KeptLease
from daemon.fleet.member import CoordinatorAccess, Member, MemberContext
from daemon.fleet.own_figures import parts_of
from daemon.fleet.own_sources import OwnSources
from daemon.fleet.placer import Placer, PlacerThread
from daemon.fleet.records import Endpoints, MemberRecord
from daemon.lifecycle import Phase, Steps
from daemon.parts import DaemonParts
from daemon.sources.decode import DecoderBackend, NoHardwareDecoder
from daemon.system.runtime import Runtime
from daemon.system.stop_token import StopToken
from detectors.port import ModelInfo
from lookout.messages import GpuMetrics, Metrics

_POLL_S = 0.05


@dataclass(frozen=True)
class Fleet:
    """A daemon in its fleet.

    Attributes:
        figures: for HTTP.
    """

    grants: GrantedSources
    member: Member
    placer: PlacerThread
    figures: FleetParts


def open_grants(config: Config, clock: Clock) -> GrantedSources:
    """The fence of a daemon that shares its sources."""
    fleet = config.fleet
    return GrantedSources(fleet.member_name(config.gpu.device), fleet.name, fleet.on_coordinator_loss, clock)


def open_fleet(
    parts: DaemonParts,
    grants: GrantedSources,
    costs: SourceCosts,
    decoder: DecoderBackend | NoHardwareDecoder,
    access: CoordinatorAccess | None,
    stop: StopToken,
) -> Fleet:
    """
    Args:
        costs: of pictures, measured.
        decoder: of the GPU.
        access: None for the coordinator of the configuration.
        stop: of the daemon.

    Raises:
        LookoutError: the coordinator's address or files cannot be used.
    """
    config, life, runtime = parts.core.config, parts.core.life, parts.core.runtime
    placer = PlacerThread(Placer(runtime.clock, config.fleet.ttl_s), runtime)
    own = OwnSources(parts.changes, grants, parts.events.begin, runtime.clock)
    machine = Machine(costs.rate, decoder, costs.weights if config.models else {})
    endpoints = endpoints_of(config, parts.endpoint, parts.http_url)
    context = MemberContext(
        name=grants.member,
        bell=grants.bell,
        grants=grants,
        own=own,
        record=lambda: _record(parts, machine, endpoints),
        pictures=lambda: pictures_of(parts.sources.formats),
    )
    member = Member(config.fleet, context, access or _access_of(config, runtime), placer.notify, runtime)
    life.add(Steps("claims", request_stop=member.leave), Phase.INTAKE)
    life.add(placer, Phase.FLEET)  # until now it has moved the sources of this member, too
    life.add(member, Phase.FLEET)
    life.add(Steps("joining", start=lambda: _wait_joined(member, stop)), Phase.FLEET)
    return Fleet(grants, member, placer, parts_of(config.fleet, member, grants, placer.placer))


def _wait_joined(member: Member, stop: StopToken) -> None:
    """Wait until the member has joined, or goes on trying.

    Raises:
        LookoutError: this daemon cannot be a member.
    """
    while not member.settled.wait(_POLL_S) and not stop.is_set:
        pass
    if member.refusal:
        raise member.refusal


def _access_of(config: Config, runtime: Runtime) -> CoordinatorAccess:
    """The coordinator of the configuration, and a keeper for its lease."""
    from daemon.fleet.open_coordinator import open_coordinator  # loads no client of another coordinator

    return CoordinatorAccess(
        open=partial(open_coordinator, config.fleet),
        keep=lambda renewal, ttl_s: KeptLease(renewal, ttl_s, runtime.clock),
    )


def _record(parts: DaemonParts, machine: Machine, endpoints: Endpoints) -> MemberRecord:
    config, model, report = parts.core.config, parts.models, parts.monitor.last
    capacity = capacity_of(config, machine, model, _gpu_of(model, report), parts.admission.decoder_cost)
    return record_of(config, lowered(capacity, parts.overload), endpoints, parts.overload.reason)


def _gpu_of(model: ModelInfo, report: Metrics | None) -> GpuMetrics | None:
    gpus = (report.gpus if report else None) or []
    return gpus[model.gpu] if model.gpu is not None and model.gpu < len(gpus) else None
