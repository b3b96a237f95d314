"""Devices that were removed while Home Assistant may not have been running.

It keeps a device whose document has vanished meanwhile, and removes one only where it sees the document go. So at its
next start it is shown the document once more, and that it is gone.
"""

from __future__ import annotations

from daemon.bridge.mqtt.broker import Ticket
from daemon.bridge.mqtt.link import Link
from daemon.bridge.targets.opening import Memory

_DOCUMENT, _GONE = "document ", "gone "  # of the memory, before the topic
_BOTH = 2  # messages: the document, and that it is gone


class Departed:
    """Remembers documents, in the memory of the target too. Used by the thread of the target."""

    def __init__(self, link: Link, memory: Memory) -> None:
        self._link, self._memory = link, memory
        texts = memory.read()
        self._documents = {
            key.removeprefix(_DOCUMENT): text for key, text in texts.items() if key.startswith(_DOCUMENT)
        }
        self._gone = {key.removeprefix(_GONE): text for key, text in texts.items() if key.startswith(_GONE)}
        self._due: set[str] = set()
        self._sent: dict[str, list[Ticket]] = {}

    def keep(self, topic: str, body: bytes) -> None:
        """The document of a device that is there."""
        text = body.decode()
        if self._documents.get(topic) != text:
            self._documents[topic] = text
            self._memory.write(_DOCUMENT + topic, text)
        self._forget(topic)

    def remove(self, topic: str) -> None:
        """Its device is not there any more; of other topics nothing is known."""
        text = self._documents.pop(topic, None)
        if text is not None:
            self._memory.write(_DOCUMENT + topic, None)
            self._gone[topic] = text
            self._memory.write(_GONE + topic, text)

    def leave(self, topic: str) -> None:
        """Its device is of another bridge by now."""
        self._forget(topic)
        if self._documents.pop(topic, None) is not None:
            self._memory.write(_DOCUMENT + topic, None)

    def begin(self) -> None:
        """Home Assistant has started: show and take back all that are gone, in the next calls of `tend`."""
        self._due = {*self._gone}

    def tend(self) -> None:
        """Send as far as there is room. A device is forgotten when the broker has taken both of its messages."""
        for topic, tickets in [*self._sent.items()]:
            if len(tickets) == _BOTH and all(ticket.is_done for ticket in tickets):
                del self._sent[topic]
                if all(ticket.is_taken for ticket in tickets) and topic not in self._due:
                    self._forget(topic)
        for topic in sorted(self._due):
            tickets = self._sent.setdefault(topic, [])
            if len(tickets) == _BOTH:
                continue  # of an earlier start
            bodies = self._gone[topic].encode(), b""
            for body in bodies[len(tickets) :]:
                if not self._link.has_room:
                    return
                tickets.append(self._link.publish(topic, body, qos=1, retain=False))
            self._due.discard(topic)

    def _forget(self, topic: str) -> None:
        self._due.discard(topic)
        self._sent.pop(topic, None)
        if self._gone.pop(topic, None) is not None:
            self._memory.write(_GONE + topic, None)
