"""Connections to people: a text for each record, and one for many that waited."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Protocol

from daemon.bridge.push.connection import MOST_S, PushConnection
from daemon.bridge.push.digest import digest_of
from daemon.bridge.push.port import RefusedError
from daemon.bridge.push.texts import Said, Texts
from daemon.bridge.records import Delivery


class Messenger(Protocol):
    """Sends a message to people."""

    def send(self, said: Said, until: float) -> None:
        """Return when it is confirmed; a picture that is not taken is left out, and the text says why.

        Args:
            until: by `time.monotonic`.

        Raises:
            RefusedError, AwayError, GoneError.
        """
        ...

    def close(self) -> None:
        """End a request that hangs; any thread."""
        ...


class PeopleConnection(PushConnection):
    """See `Digests`.

    Args:
        timeout_s: of a record, with all its requests.
    """

    def __init__(self, messenger: Messenger, texts: Texts, timeout_s: float) -> None:
        super().__init__(_Written(messenger, texts), timeout_s)
        self._messenger, self._texts, self._limit_s = messenger, texts, min(timeout_s, MOST_S)

    def digest(self, batch: Sequence[Delivery]) -> str | None:
        try:
            self._messenger.send(digest_of(batch, self._texts), monotonic() + self._limit_s)
        except RefusedError as error:
            return str(error)
        return None


class _Written:
    """A pusher of texts."""

    def __init__(self, messenger: Messenger, texts: Texts) -> None:
        self._messenger, self._texts = messenger, texts
        self.close = messenger.close

    def push(self, delivery: Delivery, until: float) -> None:
        self._messenger.send(self._texts.of(delivery), until)
