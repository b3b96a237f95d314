"""The texts that a spool keeps over restarts, and which of them are not on disk yet."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from daemon.bridge.spool_file import Text

_Key = tuple[str, str]  # owner, key


class SpoolTexts:
    """Any thread may use it.

    Args:
        known: what is on disk.
    """

    def __init__(self, known: Mapping[_Key, str]) -> None:
        self._guard = threading.Lock()
        self._known = dict(known)
        self._changed: dict[_Key, str | None] = {}

    def keep(self, texts: Sequence[Text]) -> None:
        with self._guard:
            self._changed.update(((text.owner, text.key), text.value) for text in texts)

    def get(self, owner: str, key: str) -> str | None:
        """None without one."""
        with self._guard:
            return self._changed[owner, key] if (owner, key) in self._changed else self._known.get((owner, key))

    def on_disk(self, owner: str, key: str) -> str | None:
        """As `get`, without what is not written yet."""
        with self._guard:
            return self._known.get((owner, key))

    def of(self, owner: str) -> Mapping[str, str]:
        """All of an owner, by key."""
        with self._guard:
            known = {**self._known, **self._changed}
            return {key: value for (whose, key), value in known.items() if whose == owner and value is not None}

    @property
    def owners(self) -> set[str]:
        """Of all texts."""
        with self._guard:
            known = {**self._known, **self._changed}
            return {owner for (owner, _), value in known.items() if value is not None}

    def changed(self) -> list[Text]:
        """What is to be written."""
        with self._guard:
            return [Text(*key, value) for key, value in self._changed.items()]

    def settle(self, written: Sequence[Text]) -> None:
        """These are on disk."""
        with self._guard:
            for owner, key, value in written:
                if value is None:
                    self._known.pop((owner, key), None)
                else:
                    self._known[owner, key] = value
                if self._changed.get((owner, key), ...) == value:
                    del self._changed[owner, key]

    def all_are_new(self) -> None:
        """The file was begun anew: all of them are to be written."""
        with self._guard:
            self._changed = {**self._known, **self._changed}
