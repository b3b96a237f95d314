"""Keys of a fleet in etcd: /lookout/FLEET/v1/SECTION/ID."""

from __future__ import annotations

from urllib.parse import quote, unquote

from daemon.fleet.records import SCHEMA


class Keys:
    """Names are percent-encoded in keys: those of members have a slash.

    Attributes:
        every: prefix of all versions of the schema.
        prefix: of this version.
    """

    def __init__(self, fleet: str) -> None:
        self.every = f"/lookout/{_encoded(fleet)}/".encode()
        self.prefix = self.every + f"{SCHEMA}/".encode()
        self.born, self.placer = self.prefix + b"born", self.prefix + b"placer"

    def of(self, section: str, *names: str) -> bytes:
        return self.prefix + "/".join((section, *map(_encoded, names))).encode()

    def under(self, section: str, *names: str) -> bytes:
        """The prefix of keys below `of`."""
        return self.of(section, *names) + b"/"

    def parsed(self, key: bytes) -> tuple[str, tuple[str, ...]]:
        """Section and names of a key.

        Raises:
            ValueError: it is no text.
        """
        section, *names = key.removeprefix(self.prefix).decode().split("/")
        return section, tuple(map(unquote, names))


def _encoded(name: str) -> str:
    return quote(name, safe="")
