"""A member's record for the others: capacity, addresses, and the videos that it sees."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import msgspec
import zmq

from daemon import __version__
from daemon.config.root import Config
from daemon.control.capacity import cores
from daemon.control.overload import Overload
from daemon.control.plan import PROCESS_BYTES, planned_processes
from daemon.fleet.records import Capacity, Endpoints, MemberRecord, StreamFormat
from daemon.publish.curve_keys import secret_key
from daemon.sources.decode import DecoderBackend, NoHardwareDecoder
from detectors.port import ModelInfo
from lookout.messages import GpuMetrics, VideoFormat

_WIDTH, _HEIGHT, _FPS = 1920, 1080, 30.0
_CODECS = ("h264", "hevc")
_ANYWHERE = ("0.0.0.0", "::", "*", "")  # noqa: S104 - not bound here


@dataclass(frozen=True)
class Machine:
    """Attributes:
    detector: pictures a second, measured.
    decoder: of the GPU.
    models: see `Capacity`.
    """

    detector: float
    decoder: DecoderBackend | NoHardwareDecoder
    models: Mapping[str, float] = field(default_factory=dict)


def lowered(capacity: Capacity, overload: Overload) -> Capacity:
    """The capacity that a member has shown, where that is less."""
    shown = overload.shown_fps
    return msgspec.structs.replace(
        capacity,
        detector=capacity.detector if shown is None else min(capacity.detector, shown),
        decoders={codec: rate * overload.decoded_share for codec, rate in capacity.decoders.items()},
        cpu_decoding=capacity.cpu_decoding * overload.decoded_share,
    )


def capacity_of(
    config: Config, machine: Machine, model: ModelInfo, gpu: GpuMetrics | None, decoder_cost: float
) -> Capacity:
    """The capacity for sources.

    Args:
        gpu: its figures; None without one, and before the first report.
        decoder_cost: of a picture, over its estimate.
    """
    decoders: dict[str, float] = {}
    memory: dict[str, int] = {}
    for codec in _CODECS:
        share, size = machine.decoder.estimate(codec, _WIDTH, _HEIGHT, _FPS, low_latency=True)
        if share > 0:
            decoders[codec] = round(_WIDTH * _HEIGHT * _FPS / (share * decoder_cost))
            memory[codec] = size
    return Capacity(
        detector=round(machine.detector, 1),
        decoders=decoders,
        cores=float(cores()),
        memory=_memory_for_sources(config, model, gpu) if decoders else None,
        source_memory=memory,
        sessions=machine.decoder.sessions,
        models={name: round(cost, 4) for name, cost in machine.models.items()},
    )


def _memory_for_sources(config: Config, model: ModelInfo, gpu: GpuMetrics | None) -> int | None:
    """Bytes of the GPU beside those of lanes and capture processes; None if they are unknown."""
    limit = config.gpu.memory_limit_mib
    total = gpu.memory_total_bytes if gpu and limit is None else limit and limit << 20
    if not total:
        return None
    return max(0, total - model.memory_bytes - planned_processes(config) * PROCESS_BYTES)


def record_of(config: Config, capacity: Capacity, endpoints: Endpoints, overloaded: str | None) -> MemberRecord:
    return MemberRecord(
        release=__version__,
        state="starting",
        capacity=capacity,
        endpoints=endpoints,
        labels=config.fleet.labels,
        overloaded=overloaded,
    )


def endpoints_of(config: Config, messages: str, http: str | None) -> Endpoints:
    """Where others reach this daemon: a wildcard is replaced by the address or the name of this host.

    Args:
        messages: where it is bound.
        http: its API as this machine reaches it; None without one.
    """
    curve = config.publisher.curve
    address = config.fleet.address or socket.gethostname()
    return Endpoints(
        messages=_reachable(messages, address),
        server_key=zmq.curve_public(secret_key(curve)).decode() if curve else None,
        http=_reachable_http(config, http, address) if http else None,
    )


def _reachable(endpoint: str, address: str) -> str:
    scheme, _, place = endpoint.partition("://")
    host, colon, port = place.rpartition(":")
    if scheme == "tcp" and host.strip("[]") in _ANYWHERE:
        host = _bracketed(address)
    return f"{scheme}://{host}{colon}{port}"


def _reachable_http(config: Config, url: str, address: str) -> str:
    if config.http.host not in _ANYWHERE:
        return url
    parts = urlsplit(url)
    return f"{parts.scheme}://{_bracketed(address)}:{parts.port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def pictures_of(formats: Mapping[str, VideoFormat]) -> dict[str, StreamFormat]:
    """The videos of connected sources."""
    return {
        id: StreamFormat(codec=row.codec, width=row.width, height=row.height, fps=round(row.fps or _FPS, 2))
        for id, row in formats.items()
    }
