"""Shares of a member's resources that a source takes, in arrays over sources and members."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from daemon.fleet.records import Capacity, FleetView, SourceRecord, StreamFormat
from daemon.view_config import TilesConfig, tiles_of

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Hashes = npt.NDArray[np.uint64]
Look = tuple[str, ...]

RESOURCES = (
    "the detector",
    "the GPU's decoder",
    "the GPU's memory",
    "the GPU's decoder sessions",
    "decoding on the CPU",
)
USABLE: Floats = np.array([0.9, 0.94, 1.0, 1.0, 0.9])
"""Shares of each resource for new sources, as `daemon.control.admission` has them."""
FULL: Floats = np.ones(len(RESOURCES))
"""Shares up to which sources stay. Videos that differ a little from what was expected move nothing."""

_DETECTOR, _DECODER, _MEMORY, _SESSIONS, _CPU = range(len(RESOURCES))
_PICTURE = 1920 * 1080  # pixels, that `Capacity.source_memory` is for
_DEFAULT_MEMORY = 64 << 20  # bytes of the GPU for a source whose codec has no entry


@dataclass(frozen=True)
class Demands:
    """Demand of sources, in rows; all arrays have the shape (n,).

    Attributes:
        detected: pictures a second for the detector.
        pixels: decoded pixels a second; 0 for a source without packets.
        area: pixels of a picture.
        codec: index in `codecs`.
        look: index in `looks`.
        on_cpu: the GPU must not decode it.
        on_gpu: the CPU must not decode it.
        looks: names of the models that look at a source; none where its configuration names none.
    """

    detected: Floats
    pixels: Floats
    area: Floats
    codec: Indices
    look: Indices
    on_cpu: npt.NDArray[np.bool_]
    on_gpu: npt.NDArray[np.bool_]
    codecs: tuple[str, ...]
    looks: tuple[Look, ...]


@dataclass(frozen=True)
class Capacities:
    """Capacity of members, in columns.

    Attributes:
        detector, cpu: (m,) pictures and pixels a second.
        memory, sessions: (m,) infinite without a limit.
        decoders, source_memory: (codecs, m) pixels a second, bytes for an area of 1920x1080; 0 where the GPU does not
            decode it.
        costs: (looks, m) of a picture, in those that `detector` counts; infinite without one of the models.
    """

    detector: Floats
    cpu: Floats
    memory: Floats
    sessions: Floats
    decoders: Floats
    source_memory: Floats
    costs: Floats


def demands_of(view: FleetView, sources: Sequence[str]) -> Demands:
    """Demand by the video as the last owner saw it, else as it is expected, else by 1080p30 in H.264."""
    rows = [_row(view.sources[name], view.seen.get(name)) for name in sources]
    codecs = tuple(sorted({row[3] for row in rows}))
    numbers = {codec: number for number, codec in enumerate(codecs)}
    seen_by = [_look(view.sources[name].config) for name in sources]
    looks = {look: number for number, look in enumerate(sorted(set(seen_by)))}
    values: Floats = np.array([row[:3] for row in rows], np.float64).reshape(len(rows), 3)
    return Demands(
        detected=values[:, 0],
        pixels=values[:, 1],
        area=values[:, 2],
        codec=np.array([numbers[row[3]] for row in rows], np.intp),
        look=np.array([looks[look] for look in seen_by], np.intp),
        on_cpu=np.array([row[4] == "cpu" for row in rows], bool),
        on_gpu=np.array([row[4] == "nvdec" for row in rows], bool),
        codecs=codecs,
        looks=tuple(looks),
    )


def capacities_of(capacities: Sequence[Capacity], codecs: Sequence[str], looks: Sequence[Look]) -> Capacities:
    """The columns of members."""

    def table(rows: Sequence[Mapping[str, float]], default: float) -> Floats:
        return np.array([[row.get(codec, default) for row in rows] for codec in codecs], np.float64).reshape(
            len(codecs), len(capacities)
        )

    return Capacities(
        detector=np.array([row.detector for row in capacities], np.float64),
        cpu=np.array([row.cores * row.cpu_decoding for row in capacities], np.float64),
        memory=np.array([np.inf if row.memory is None else row.memory for row in capacities], np.float64),
        sessions=np.array([np.inf if row.sessions is None else row.sessions for row in capacities], np.float64),
        decoders=table([row.decoders for row in capacities], 0.0),
        source_memory=table([row.source_memory for row in capacities], _DEFAULT_MEMORY),
        costs=np.array([[_cost(look, row.models) for row in capacities] for look in looks], np.float64).reshape(
            len(looks), len(capacities)
        ),
    )


def shares(demands: Demands, capacities: Capacities, rows: Indices, columns: Indices) -> Floats:
    """Shares of each resource that sources take of members.

    Args:
        rows, columns: of sources and members; any two shapes that numpy broadcasts.

    Returns:
        Their common shape, with `RESOURCES` as the last axis; infinite where a source is not possible.
    """
    shape = np.broadcast_shapes(rows.shape, columns.shape)
    codec, pixels = demands.codec[rows], demands.pixels[rows]
    decoders = capacities.decoders[codec, columns]
    with_gpu = (decoders > 0) & ~demands.on_cpu[rows] & (pixels > 0)
    memory = capacities.source_memory[codec, columns] * demands.area[rows] / _PICTURE
    found = np.empty((*shape, len(RESOURCES)))
    with np.errstate(invalid="ignore"):  # no frames at an infinite cost
        detected = demands.detected[rows] * capacities.costs[demands.look[rows], columns]
    found[..., _DETECTOR] = _share(detected, capacities.detector[columns])
    found[..., _DECODER] = _share(np.where(with_gpu, pixels, 0.0), decoders)
    found[..., _MEMORY] = _share(np.where(with_gpu, memory, 0.0), capacities.memory[columns])
    found[..., _SESSIONS] = _share(with_gpu.astype(np.float64), capacities.sessions[columns])
    found[..., _CPU] = _share(np.where(with_gpu, 0.0, pixels), capacities.cpu[columns])
    found[demands.on_gpu[rows] & ~with_gpu & (pixels > 0), _DECODER] = np.inf
    return found


def scores(sources: Sequence[str], members: Sequence[str], weights: Floats) -> Floats:
    """Weighted rendezvous: each source prefers the member with the highest score, whoever else is there.

    A member gets sources in proportion to its weight. Source of the formula: Schindelhauer and Schomaker, "Weighted
    Distributed Hash Tables", 2005.

    Args:
        weights: (sources, members), above 0.
    """
    mixed = _mix(_hashes(sources)[:, None] ^ _mix(_hashes(members))[None, :])
    uniform = ((mixed >> np.uint64(11)).astype(np.float64) + 0.5) / float(1 << 53)
    found: Floats = -weights / np.log(uniform)
    return found


def _row(source: SourceRecord, seen: StreamFormat | None) -> tuple[float, float, float, str, str]:
    """Pictures a second to detect, decoded pixels a second, pixels of a picture, codec, and `decode`.

    The owner checks the configuration; a value that makes no sense counts as absent here.
    """
    config, picture = source.config, seen or source.expected or _drawn(source.config) or StreamFormat()
    area = float(max(1, picture.width) * max(1, picture.height))
    fps = max(0.0, picture.fps)
    limit = config.get("max_fps")
    wanted = min(fps, limit) if isinstance(limit, int | float) and limit > 0 else fps
    decoded = 0.0 if config.get("type") == "synthetic" else area * fps
    return wanted * _pictures(config.get("tiles")), decoded, area, picture.codec, str(config.get("decode", "auto"))


def _look(config: Mapping[str, object]) -> Look:
    named = config.get("model")
    return tuple(sorted(map(str, named))) if isinstance(named, list) else () if named is None else (str(named),)


def _cost(look: Look, models: Mapping[str, float]) -> float:
    """The cost of a picture for the models that look, at a member that has these."""
    if not look:
        return 1.0 if len(models) <= 1 else np.inf
    return sum(models.get(name, np.inf) for name in look)


def _drawn(config: Mapping[str, object]) -> StreamFormat | None:
    """The picture of a synthetic source."""
    if config.get("type") != "synthetic":
        return None
    sides = [config.get(name, default) for name, default in (("width", 640), ("height", 360))]
    fps = config.get("fps", 30.0)
    if all(isinstance(side, int) for side in sides) and isinstance(fps, int | float):
        return StreamFormat(codec="", width=int(str(sides[0])), height=int(str(sides[1])), fps=float(fps))
    return None


def _pictures(tiles: object) -> int:
    """Pictures that the detector sees for a frame."""
    if isinstance(tiles, str):
        tiling = tiles_of(tiles)
    elif isinstance(tiles, dict):
        known = {name: tiles[name] for name in TilesConfig.__struct_fields__ if name in tiles}
        sides = [known.get("columns"), known.get("rows")]
        tiling = TilesConfig(**known) if all(isinstance(side, int) for side in sides) else None
    else:
        tiling = None
    return tiling.pictures if tiling else 1


def _share(demand: Floats, capacity: Floats) -> Floats:
    """Demand by capacity; 0 where nothing is asked for, infinite where there is no capacity."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = np.where(demand > 0, demand / capacity, 0.0)
    return found


def _hashes(names: Sequence[str]) -> Hashes:
    digests = b"".join(hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def _mix(values: Hashes) -> Hashes:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): each bit of the input changes half of the output's."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: Hashes = values ^ (values >> np.uint64(31))
    return found
