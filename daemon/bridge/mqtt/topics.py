"""Names of topics. Two different names never give the same topic."""

from __future__ import annotations

from collections.abc import Sequence

from daemon.bridge.messages import Notice
from daemon.bridge.records import Record
from lookout.messages import Owner

_NOBODY = "_"  # of a message about no source
_MAX_BYTES = 65_535  # of a topic, as MQTT has it


def level(name: str | None) -> str:
    """A name as one level of a topic: what MQTT reserves or forbids is written as in a URL.

    `_` stands for None and for an empty name, and a name that is `_` is escaped.
    """
    if not name:
        return _NOBODY
    if name == _NOBODY:
        return _escaped(name)
    return "".join(sign if _is_plain(sign) else _escaped(sign) for sign in name)


class Topics:
    """The topics below a prefix. A source stands below its daemon, or its fleet, where the bridge has several.

    Args:
        daemons: all in the bridge.
    """

    def __init__(self, prefix: str, daemons: Sequence[str]) -> None:
        self.prefix, self._has_several = prefix, len(daemons) > 1
        self.owner, self.bridge = f"{prefix}/bridge/owner", f"{prefix}/bridge/state"

    def record(self, record: Record, owner: Owner | None) -> str:
        """Of an event, a clip, a notice or a loss."""
        if record.kind == "loss":
            return f"{self.prefix}/loss"
        notice = record.message
        if isinstance(notice, Notice):
            path = self._path(notice.daemon, notice.name) if notice.name else level(notice.daemon)
            return f"{self.prefix}/status/{notice.about}/{path}"
        kind = "events" if record.kind == "event" else "clips"
        return f"{self.prefix}/{kind}/{self.path(record.daemon, record.source, owner)}"

    def figure(self, daemon: str, source: str, owner: Owner | None) -> str:
        return f"{self.prefix}/detections/{self.path(daemon, source, owner)}"

    def source(self, daemon: str, source: str, owner: Owner | None) -> str:
        """The topic below which the states of a source stand."""
        return f"{self.prefix}/sources/{self.path(daemon, source, owner)}"

    def kind_of(self, topic: str) -> str | None:
        """The last level of a state of a source as a whole, such as `availability`; None for other topics."""
        base = f"{self.prefix}/sources/"
        levels = topic.removeprefix(base).split("/")
        return levels[-1] if topic.startswith(base) and len(levels) == (3 if self._has_several else 2) else None

    def daemon(self, daemon: str) -> str:
        return f"{self.prefix}/daemons/{level(daemon)}"

    def path(self, daemon: str, source: str, owner: Owner | None) -> str:
        """Of a source, below a kind."""
        return self._path(place(daemon, owner), source)

    def _path(self, place: str, name: str) -> str:
        return f"{level(place)}/{level(name)}" if self._has_several else level(name)


def place(daemon: str, owner: Owner | None) -> str:
    """Where the ids of sources are unique: a daemon, or a fleet, in which sources move from daemon to daemon."""
    return owner.fleet if owner is not None and owner.fleet else daemon


def is_topic(topic: str) -> bool:
    """Whether it can be published to."""
    return (
        0 < len(topic.encode(errors="replace")) <= _MAX_BYTES
        and all(_is_allowed(sign) or sign == "/" for sign in topic)
        and not any(sign in topic for sign in "+#")
    )


def _is_plain(sign: str) -> bool:
    return sign not in "+#/%$" and _is_allowed(sign)


def _is_allowed(sign: str) -> bool:
    """Control characters, halves of pairs and non-characters make a broker close the connection."""
    code = ord(sign)
    return not (
        code < 0x20
        or 0x7F <= code < 0xA0
        or 0xD800 <= code < 0xE000
        or 0xFDD0 <= code < 0xFDF0
        or code & 0xFFFE == 0xFFFE
    )


def _escaped(sign: str) -> str:
    return "".join(f"%{byte:02X}" for byte in sign.encode(errors="surrogatepass"))
