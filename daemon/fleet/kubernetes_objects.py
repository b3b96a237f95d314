"""Objects of the Kubernetes API, as far as a fleet uses them."""

from __future__ import annotations

import msgspec


class Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}


class LeaseSpec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None


class Object(msgspec.Struct):
    """A Lease or a ConfigMap."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)
    data: dict[str, str] = {}

    @property
    def version(self) -> int:
        """Of this object; higher after each change. Kubernetes promises numbers that can be compared within a kind."""
        return number(self.metadata.resource_version)

    def note(self, name: str) -> str:
        """An annotation; empty without it."""
        return self.metadata.annotations.get(name, "")


class ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    next: str = msgspec.field(default="", name="continue")


class ObjectList(msgspec.Struct):
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[Object] = []


class Event(msgspec.Struct):
    """Attributes:
    type: ADDED, MODIFIED, DELETED or BOOKMARK.
    """

    type: str
    object: Object


class RawEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class Status(msgspec.Struct):
    message: str = ""
    code: int = 0


def number(version: str) -> int:
    """A resourceVersion as a number; 0 if it is none."""
    return int(version) if version.isdecimal() else 0
