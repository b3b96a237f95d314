"""The check before messages leave: whether this daemon may speak for a source now.

Several daemons may share sources. A daemon that has lost a source to another one must not publish for it any more, not
even detections that are made already. So the publisher asks before it sends, for each batch of messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from daemon.pipeline.frames import FrameInfo
from lookout.messages import Owner


class Grant(NamedTuple):
    """The right to publish for one source.

    Attributes:
        owner: as messages name it.
        since_ns: monotonic: frames that were captured before are of an earlier owner.
    """

    owner: Owner
    since_ns: int


Grants = Mapping[str, Grant]
"""By source."""


class Fence(Protocol):
    """Any thread may ask; no method blocks."""

    def owner(self, source: str) -> Owner | None:
        """The owner whose messages about a source are made now, whether or not they may be sent; None without one."""
        ...

    def grants(self) -> Grants | None:
        """The sources that may be published for at this moment; None if all may."""
        ...

    def on_forgotten(self, source: str) -> None:
        """The last message of a removed source is sent."""
        ...


class NoFence:
    """A daemon that shares its sources with no other."""

    def owner(self, source: str) -> None:  # noqa: ARG002 - of none
        return None

    def grants(self) -> None:
        return None

    def on_forgotten(self, source: str) -> None:
        """Nobody waits for it."""


class Owned(Protocol):
    """A message or packet of a source."""

    @property
    def source(self) -> str: ...
    @property
    def owner(self) -> Owner | None: ...


def may_send(grants: Grants | None, message: Owned) -> bool:
    """Whether a message may be sent. One that an earlier ownership of the same source has left behind may not."""
    if grants is None:
        return True
    grant = grants.get(message.source)
    return grant is not None and grant.owner == message.owner


def owner_of_frame(grants: Grants, frame: FrameInfo) -> Owner | None:
    """The owner of a frame; None if its detections may not be sent."""
    grant = grants.get(frame.source)
    return None if grant is None or frame.captured_ns < grant.since_ns else grant.owner
