"""All records of a fleet as etcd has them, decoded once each, and views of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from daemon.etcd.answers import Event, KeyValue
from daemon.fleet.etcd_keys import Keys
from daemon.fleet.records import (
    FleetView,
    HoldDown,
    MemberRecord,
    Owned,
    Ownership,
    SourceRecord,
    StreamFormat,
    Want,
)


class Born(msgspec.Struct, frozen=True):
    """The base of epochs. It rises when members join, so that epochs rise when etcd is restored from a backup.

    Attributes:
        ms: epochs are this plus the revision of the claim.
        cluster: id of etcd's cluster, for those who look.
    """

    ms: int
    cluster: int = 0


class Reason(msgspec.Struct, frozen=True):
    reason: str = ""


class Count(msgspec.Struct, frozen=True):
    count: int


class Left(msgspec.Struct, frozen=True):
    joined: int


def _plain(value: Any, _: KeyValue) -> Any:
    return value


def _owned(value: Ownership, row: KeyValue) -> Owned:
    return Owned(value.member, value.base + row.create_revision)


Made = Callable[[Any, KeyValue], Any]
# By section: the type of a record, what a view has for it, and how many names a key has.
_SECTIONS: dict[str, tuple[type[Any], Made, int]] = {
    "members": (MemberRecord, lambda value, row: (value, row.create_revision), 1),
    "drained": (Reason, lambda value, _: value.reason, 1),
    "sources": (SourceRecord, _plain, 1),
    "wants": (Want, _plain, 1),
    "own": (Ownership, _owned, 1),
    "refused": (Reason, lambda value, _: value.reason, 2),
    "seen": (StreamFormat, _plain, 1),
    "losses": (Count, lambda value, _: value.count, 1),
    "held": (HoldDown, _plain, 1),
    "left": (Left, lambda value, _: value.joined, 1),
    "placer": (Ownership, lambda value, _: value.member, 0),
    "born": (Born, _plain, 0),
}
_DECODERS = {section: msgspec.json.Decoder(kind) for section, (kind, _, _) in _SECTIONS.items()}


class Records:
    """One thread uses it. Views share what has not changed, and are not changed afterwards."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._rows: dict[str, dict[tuple[str, ...], Any]] = {section: {} for section in _SECTIONS}
        self._problems: dict[str, str] = {}
        self._notes: dict[str, str] = {}
        self._made: dict[str, Mapping[Any, Any]] = {}  # by section, until a record of it changes

    def replace(self, rows: Iterable[KeyValue], notes: Mapping[str, str]) -> None:
        """Begin anew.

        Args:
            notes: problems beside those of records.
        """
        for section in self._rows.values():
            section.clear()
        self._made.clear()
        self._problems.clear()
        self._notes = dict(notes)
        for row in rows:
            self._put(row)

    def apply(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.kind == "DELETE":
                self._delete(event.kv.key)
            else:
                self._put(event.kv)

    def view(self, revision: int) -> FleetView:
        members = self._section("members")
        placer: str | None = self._rows["placer"].get(())
        return FleetView(
            revision=revision,
            members={name: record for name, (record, _) in members.items()},
            joined={name: created for name, (_, created) in members.items()},
            drained=self._section("drained"),
            sources=self._section("sources"),
            wants=self._section("wants"),
            owned=self._section("own"),
            refused=self._refused(),
            seen=self._section("seen"),
            losses=self._section("losses"),
            held=self._section("held"),
            placer=placer,
            problems={**self._notes, **self._problems},
            left=self._section("left"),
        )

    def _put(self, row: KeyValue) -> None:
        try:
            section, names = self._keys.parsed(row.key)
            if section not in _SECTIONS:  # of a newer release
                return
            _, make, depth = _SECTIONS[section]
            if len(names) != depth:
                raise ValueError("a key of another form")
            self._rows[section][names] = make(_DECODERS[section].decode(row.value), row)
        except (msgspec.MsgspecError, ValueError) as error:
            self._delete(row.key)
            self._problems[_text(row.key)] = f"cannot be read: {error}"
            return
        self._problems.pop(_text(row.key), None)
        self._made.pop(section, None)

    def _delete(self, key: bytes) -> None:
        self._problems.pop(_text(key), None)
        try:
            section, names = self._keys.parsed(key)
        except ValueError:
            return
        if section in self._rows:
            self._rows[section].pop(names, None)
            self._made.pop(section, None)

    def _section(self, section: str) -> Mapping[str, Any]:
        if section not in self._made:
            self._made[section] = {names[0]: value for names, value in self._rows[section].items()}
        return self._made[section]

    def _refused(self) -> Mapping[str, Mapping[str, str]]:
        if "refused" not in self._made:
            made: dict[str, dict[str, str]] = {}
            for (source, member), reason in self._rows["refused"].items():
                made.setdefault(source, {})[member] = reason
            self._made["refused"] = made
        return self._made["refused"]


def _text(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")
