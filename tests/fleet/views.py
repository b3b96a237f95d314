"""Views of fleets, for tests of the placer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from daemon.fleet.demand import USABLE
from daemon.fleet.records import Capacity, Endpoints, FleetView, MemberRecord, MemberState, SourceRecord, Want

ENDPOINTS = Endpoints(messages="tcp://127.0.0.1:5556")
FPS = 30.0
PIXELS_PER_S = 1920 * 1080 * FPS


def capacity_for(sources: float) -> Capacity:
    """A GPU with room for so many sources of 1080p30 in H.264."""
    detector, decoder = USABLE[:2].tolist()
    return Capacity(
        detector=(sources + 0.5) * FPS / detector,
        decoders={"h264": (sources + 0.5) * PIXELS_PER_S / decoder, "hevc": 2 * sources * PIXELS_PER_S / decoder},
    )


def member(
    room: float | Capacity, *, state: MemberState = "ready", labels: Mapping[str, str] | None = None
) -> MemberRecord:
    """Args:
    room: for so many sources of 1080p30 in H.264.
    """
    capacity = room if isinstance(room, Capacity) else capacity_for(room)
    return MemberRecord(release="1", state=state, capacity=capacity, endpoints=ENDPOINTS, labels=dict(labels or {}))


def camera(name: str, *, priority: int = 0, affinity: Mapping[str, str] | None = None, **config: Any) -> SourceRecord:
    row = {"id": name, "type": "av", "url": f"rtsp://10.0.0.1/{name}", **config}
    return SourceRecord(config=row, priority=priority, affinity=dict(affinity or {}))


def cameras(count: int, **given: Any) -> dict[str, SourceRecord]:
    return {f"camera-{number}": camera(f"camera-{number}", **given) for number in range(count)}


def view(members: Mapping[str, MemberRecord], sources: Mapping[str, SourceRecord], **given: Any) -> FleetView:
    fields: dict[str, Any] = {
        "revision": 1,
        "joined": dict.fromkeys(members, 1),
        "placer": None,
        **{name: {} for name in ("drained", "wants", "owned", "refused", "seen", "losses", "held", "problems")},
        **given,
    }
    return FleetView(members=members, sources=sources, **fields)


def written(before: FleetView, wants: Mapping[str, Want]) -> FleetView:
    """The view after a placer has written its wants."""
    return replace(before, revision=before.revision + 1, wants={**before.wants, **wants})


def without(before: FleetView, *members: str) -> FleetView:
    """The view after members were lost, with all that they owned."""
    return replace(
        before,
        members={name: row for name, row in before.members.items() if name not in members},
        joined={name: number for name, number in before.joined.items() if name not in members},
        owned={name: owned for name, owned in before.owned.items() if owned.member not in members},
    )


def placed(found: FleetView) -> dict[str, str | None]:
    """The member of each source that has a want; sources that were removed are left out."""
    return {name: want.member for name, want in found.wants.items() if name in found.sources}
