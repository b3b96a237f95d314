"""An event as it is sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace as _replace

from daemon.analytics.event import Event
from lookout import messages
from lookout.messages import Owner


@dataclass(frozen=True)
class Identity:
    """The daemon's run, as its messages name it.

    Attributes:
        owner: the owner of a source now; None for a daemon that shares its sources with no other.
    """

    instance: str
    owner: Callable[[str], Owner | None] | None = None

    def owner_of(self, source: str) -> Owner | None:
        return self.owner(source) if self.owner else None


def message_of(
    event: Event, number: int, id: str, identity: Identity, snapshot: str | None, clip: str | None
) -> messages.Event:
    """An event as it is sent."""
    began, confirmed, box = event.began, event.confirmed, event.box
    source = event.source
    message = messages.Event(  # in two steps: Python makes a dict for a call with more than 15 names, which costs more
        id=id,
        number=number,
        instance=identity.instance,
        source=source,
        session=began.session,
        index=0,
        kind=event.kind,
        phase=event.phase,
        seq=began.seq,
        pts=began.pts,
        at=began.captured_at,
        confirmed_seq=confirmed.seq,
        confirmed_at=confirmed.captured_at,
    )
    return _replace(
        message,
        rule=event.rule,
        direction=event.direction,
        track=event.track,
        label=event.label,
        box=None if box is None else (round(box[0], 2), round(box[1], 2), round(box[2], 2), round(box[3], 2)),
        dwell=event.dwell_ns,
        count=event.count,
        reason=event.reason,
        unseen=event.unseen,
        snapshot=snapshot,
        clip=clip,
        attribute=event.attribute,
        owner=identity.owner_of(source),
    )
