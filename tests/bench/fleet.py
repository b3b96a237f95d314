"""`python -m tests.bench fleet`: the time that a placer computes, for a number of members and sources.

Members have one of four capacities, and sources one of four videos. The fleet has room for an eighth more. No
coordinator takes part: `python -m tests.fleet.simulation`, in a checkout, measures one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from statistics import median
from time import perf_counter

from daemon.fleet.demand import USABLE
from daemon.fleet.placement import place
from daemon.fleet.rebalance import rebalance
from daemon.fleet.records import Capacity, Endpoints, FleetView, MemberRecord, SourceRecord, StreamFormat, Want

_VIDEOS = (
    StreamFormat(codec="hevc", width=1920, height=1080, fps=30),
    StreamFormat(codec="h264", width=1920, height=1080, fps=25),
    StreamFormat(codec="hevc", width=3840, height=2160, fps=15),
    StreamFormat(codec="h264", width=1280, height=720, fps=15),
)
_SIZES = (1.0, 1.0, 1.0, 1.6)  # of members
_SPARE = 1.125  # capacity by demand


@dataclass(frozen=True)
class FleetOptions:
    """Options of the measurement; see `python -m tests.bench fleet --help`."""

    sources: int = 10_000
    members: int = 100
    lost: int = 10
    rounds: int = 5
    seed: int = 0


@dataclass(frozen=True)
class PlacementTime:
    """Attributes:
    name: of the change that is placed.
    median_ms, max_ms: over the rounds.
    moved: sources that get another member; those that are placed for the first time are among them.
    waiting: sources without room.
    """

    name: str
    median_ms: float
    max_ms: float
    moved: int
    waiting: int


@dataclass(frozen=True)
class FleetCost:
    """The result."""

    sources: int
    members: int
    times: tuple[PlacementTime, ...]


def fleet(options: FleetOptions) -> FleetCost:
    """Place a drawn fleet anew, with nothing to do, after a loss, with priorities, and after members were added."""
    empty = drawn_fleet(options)
    full = _written(empty, place(empty))
    lost = _without(full, options.lost)
    random = Random(options.seed)
    ranked = {id: _with_priority(row, random.randrange(5)) for id, row in lost.sources.items()}
    short = _without(full, 2 * options.lost)
    cases: tuple[tuple[str, FleetView, Callable[[FleetView], Mapping[str, Want]]], ...] = (
        ("all sources, for the first time", empty, place),
        ("nothing to do", full, place),
        (f"{options.lost} members are lost", lost, place),
        (f"{2 * options.lost} are lost: no room for all", short, place),
        ("the same, with five priorities", replace(short, sources=ranked), place),
        (f"rebalance over {options.lost} new members", _grown(full, options), lambda view: rebalance(view).wants),
    )
    return FleetCost(options.sources, options.members, tuple(_time(*case, options.rounds) for case in cases))


def drawn_fleet(options: FleetOptions) -> FleetView:
    """Members and sources, with nothing placed."""
    sources = {}
    for number in range(options.sources):
        id = f"camera-{number:05}"
        config = {"id": id, "type": "av", "url": f"rtsp://10.0.0.1/{id}"}
        sources[id] = SourceRecord(config=config, expected=_VIDEOS[number % len(_VIDEOS)])
    members = {name: _member(options, number) for number, name in enumerate(_names(options.members))}
    nothing: dict[str, dict[str, object]] = {
        name: {} for name in ("drained", "wants", "owned", "refused", "seen", "losses", "held", "problems")
    }
    joined = dict.fromkeys(members, 1)
    return FleetView(1, members=members, joined=joined, sources=sources, placer=None, **nothing)  # type: ignore[arg-type]


def _names(count: int, first: int = 0) -> list[str]:
    return [f"host{number // 4:03}/gpu{number % 4}" for number in range(first, first + count)]


def _member(options: FleetOptions, number: int) -> MemberRecord:
    """A member whose share of all capacity is by its size; demand takes the same share of each resource."""
    pictures = sum(video.fps for video in _VIDEOS) / len(_VIDEOS) * options.sources
    pixels = sum(video.fps * video.width * video.height for video in _VIDEOS) / len(_VIDEOS) * options.sources
    share = _SPARE * _SIZES[number % len(_SIZES)] / (sum(_SIZES) / len(_SIZES)) / options.members
    detector, decoder = USABLE[:2].tolist()
    capacity = Capacity(
        detector=pictures * share / detector,
        decoders={"h264": pixels * share / decoder, "hevc": pixels * share / decoder},
        memory=round(2 * options.sources * share * (64 << 20)),
        source_memory={"h264": 32 << 20, "hevc": 48 << 20},
        sessions=round(1.2 * options.sources * share) + 1,
    )
    return MemberRecord(
        release="", state="ready", capacity=capacity, endpoints=Endpoints(messages="tcp://127.0.0.1:5556")
    )


def _time(name: str, view: FleetView, work: Callable[[FleetView], Mapping[str, Want]], rounds: int) -> PlacementTime:
    times: list[float] = []
    wants: Mapping[str, Want] = {}
    for _ in range(rounds):
        begun = perf_counter()
        wants = work(view)
        times.append((perf_counter() - begun) * 1e3)
    moved = sum(want.member is not None for want in wants.values())
    return PlacementTime(name, median(times), max(times), moved, len(wants) - moved)


def _written(view: FleetView, wants: Mapping[str, Want]) -> FleetView:
    return replace(view, wants={**view.wants, **wants})


def _without(view: FleetView, count: int) -> FleetView:
    return replace(view, members=dict(islice(view.members.items(), count, None)))


def _grown(view: FleetView, options: FleetOptions) -> FleetView:
    more = {name: _member(options, number) for number, name in enumerate(_names(options.lost, options.members))}
    return replace(view, members={**view.members, **more})


def _with_priority(row: SourceRecord, priority: int) -> SourceRecord:
    return SourceRecord(config=row.config, priority=priority, expected=row.expected)
