"""One record of each kind, to try a target with."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from daemon.bridge.formats.port import formatter
from daemon.bridge.messages import Loss, Notice
from daemon.bridge.records import Delivery, Picture, Record, RecordKind
from daemon.config.targets import TargetConfig, WireBase
from lookout.messages import Clip, Event

if TYPE_CHECKING:
    from collections.abc import Callable

_DAEMON, _SOURCE = "trial", "trial"


def drawn_picture() -> Picture:
    """A grey picture with a box."""
    import cv2
    import numpy as np

    image = np.full((360, 640, 3), 96, np.uint8)
    cv2.rectangle(image, (240, 80), (400, 320), (80, 200, 80), 3)
    return Picture(cv2.imencode(".jpg", image)[1].tobytes())


def samples(target: TargetConfig, picture: Callable[[], Picture] | None, now: int) -> Iterator[Delivery]:
    """
    Args:
        picture: None where the target wants none.
        now: UTC ns.
    """
    kinds = formatter(target.format).kinds if isinstance(target, WireBase) else None
    for position, (kind, message) in enumerate(_messages(now), start=1):
        if kinds is None or kind in kinds:
            record = Record(
                now // 1_000_000, position, kind, _DAEMON, _SOURCE, message.id, now, msgspec.json.encode(message)
            )
            yield Delivery(record, picture() if picture and kind == "event" else None)


def _messages(now: int) -> Sequence[tuple[RecordKind, Event | Notice | Clip | Loss]]:
    name = f"trial-{secrets.token_hex(4)}"
    event = Event(
        id=name, number=1, instance="trial", source=_SOURCE, session="trial", index=0, kind="zone", phase="entered",
        seq=1, pts=None, at=now, confirmed_seq=1, confirmed_at=now, rule="trial", track=1, label="person",
        box=(240.0, 80.0, 400.0, 320.0),
    )  # fmt: skip
    notice = Notice(
        id=f"{name}-notice", daemon=_DAEMON, about="source", name=_SOURCE, condition="down", since=now, at=now,
        reason="a trial",
    )  # fmt: skip
    clip = Clip(
        instance="trial", source=_SOURCE, index=0, id=name, store="trial", events=[name], begin=now - 10**10, end=now,
        covered=10**10, state="ready", path=f"/api/v1/recordings/{_SOURCE}/clip.mp4?event={name}",
    )  # fmt: skip
    loss = Loss(id=f"{name}-loss", daemon=_DAEMON, count=0, at=now, cause="wire")
    return [("event", event), ("status", notice), ("clip", clip), ("loss", loss)]
