"""Devices that were removed while Home Assistant may not have been running.

It keeps a device whose document has vanished meanwhile, and removes one only where it sees the document go. So at its
next start it is shown the document once more, and that it is gone.
"""

from __future__ import annotations

from collections.abc import Iterator

from daemon.bridge.targets.opening import Memory

_DOCUMENT, _GONE = "document ", "gone "  # of the memory, before the topic


class Departed:
    """Remembers documents, in the memory of the target too."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        texts = memory.read()
        self._documents = {
            key.removeprefix(_DOCUMENT): text for key, text in texts.items() if key.startswith(_DOCUMENT)
        }
        self._gone = {key.removeprefix(_GONE): text for key, text in texts.items() if key.startswith(_GONE)}

    def keep(self, topic: str, body: bytes) -> None:
        """The document of a device that is there."""
        text = body.decode()
        if self._documents.get(topic) != text:
            self._documents[topic] = text
            self._memory.write(_DOCUMENT + topic, text)
        if self._gone.pop(topic, None) is not None:
            self._memory.write(_GONE + topic, None)

    def remove(self, topic: str) -> None:
        """Its device is not there any more; of other topics nothing is known."""
        text = self._documents.pop(topic, None)
        if text is not None:
            self._memory.write(_DOCUMENT + topic, None)
            self._gone[topic] = text
            self._memory.write(_GONE + topic, text)

    def take(self) -> Iterator[tuple[str, bytes]]:
        """Topics and documents that are to be shown and taken back, once."""
        while self._gone:
            topic, text = self._gone.popitem()
            self._memory.write(_GONE + topic, None)
            yield topic, text.encode()
