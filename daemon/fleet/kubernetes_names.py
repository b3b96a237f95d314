"""Names, labels and annotations of a fleet's objects in Kubernetes."""

from __future__ import annotations

import hashlib
import re

from daemon.clock import utc_text
from daemon.fleet.records import SCHEMA

ID, RECORD, REFUSED, JOINED = "lookout/id", "lookout/record", "lookout/refused", "lookout/joined"
MEMBERSHIP, EPOCH, SEEN, WRITTEN = "lookout/membership", "lookout/epoch", "lookout/seen", "lookout/written"
FLEET, KIND, VERSION = "lookout/fleet", "lookout/kind", "lookout/schema"
_PLAIN = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,48}[a-z0-9])?")


class Names:
    """Attributes:
    labels: of all objects of this fleet, in this version of the schema.
    """

    def __init__(self, fleet: str) -> None:
        self._fleet = slug(fleet)
        self.labels = {FLEET: self._fleet, VERSION: SCHEMA}
        self.placer, self.state = self._of("placer"), self._of("state")

    def member(self, member: str) -> str:
        return self._of("member", member)

    def source(self, source: str) -> str:
        return self._of("source", source)

    def owner(self, source: str) -> str:
        return self._of("owner", source)

    def meta(self, kind: str, id: str, **notes: str) -> dict[str, object]:
        """Metadata of a new object."""
        return {"labels": {**self.labels, KIND: kind}, "annotations": {ID: id, **notes}}

    def _of(self, kind: str, *ids: str) -> str:
        return ".".join(("lookout", self._fleet, SCHEMA, kind, *map(slug, ids)))


def slug(text: str) -> str:
    """A text as part of a name or as a label: itself if it is plain, or with a digest, which no plain one has."""
    if _PLAIN.fullmatch(text):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower())[:40].strip("-") or "x"
    return f"{plain}--{digest}"


def micro_time(utc_ns: int) -> str:
    """A time as Kubernetes writes it in leases."""
    return f"{utc_text(utc_ns)[:19]}.{utc_ns // 1000 % 1_000_000:06d}Z"
