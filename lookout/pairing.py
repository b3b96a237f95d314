"""Pictures of a source with the boxes that were found in them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from lookout.messages import Detections

PictureT = TypeVar("PictureT")


class Pairing(Generic[PictureT]):
    """Gives each picture out once, in order, with the message of its frame, or with None where it was not analysed.

    A picture comes before its message, so it waits until its message or a later one is here. Pictures and messages are
    of one source, and messages of one model.

    Args:
        limit: pictures that may wait; the oldest is given out with None when there are more.
    """

    def __init__(self, limit: int = 60) -> None:
        self._limit = limit
        self._waiting: deque[tuple[str, int | None, PictureT]] = deque()
        self._messages: deque[Detections] = deque(maxlen=10 * limit)  # some are of pictures that never come

    def add_picture(self, session: str, pts: int | None, picture: PictureT) -> None:
        """Add the next picture, in the order of showing, with the session and the time of its packet."""
        self._waiting.append((session, pts, picture))

    def add_message(self, message: Detections) -> None:
        """Add the next message, in the order in which they came."""
        self._messages.append(message)

    def ready(self) -> Iterator[tuple[PictureT, Detections | None]]:
        """Pictures that need not wait any more."""
        while self._waiting:
            session, pts, picture = self._waiting[0]
            message = self._due(session, pts)
            waits = pts is not None and len(self._waiting) <= self._limit
            if message is None and waits and not self._is_over(session):
                return
            self._waiting.popleft()
            if message is not None and pts is not None and message.pts == pts:
                yield picture, self._messages.popleft()
            else:
                yield picture, None

    def _due(self, session: str, pts: int | None) -> Detections | None:
        """The first message of a picture or of a later one; those before it are forgotten."""
        for number, message in enumerate(self._messages):
            if message.session == session and (pts is None or message.pts is None or message.pts >= pts):
                for _ in range(number):
                    self._messages.popleft()
                return message
        return None

    def _is_over(self, session: str) -> bool:
        """Whether messages of the connection after this one are here."""
        later = {other for other, _, _ in self._waiting} - {session}
        return any(message.session in later for message in self._messages)
