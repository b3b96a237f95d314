"""The account of a target, which is kept with its place in the spool, so that both are always of one moment."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from daemon.bridge.spool import Spool
from daemon.bridge.spool_file import Text

_KEY = "account"


class Account(msgspec.Struct):
    """cursor - base = delivered + filtered + thinned + sum of dropped.

    Attributes:
        base: position in the spool at which the target began.
        cursor: position up to which everything is settled.
        dropped: by cause.
        repeated: records that were sent again before they were confirmed.
        tried: position of the last record that was sent.
    """

    base: int
    cursor: int
    delivered: int = 0
    filtered: int = 0
    thinned: int = 0
    dropped: dict[str, int] = {}
    repeated: int = 0
    tried: int = 0

    def settle(self, position: int, size: int, outcome: str) -> None:
        """Records up to a position are `delivered`, `filtered`, `thinned`, or dropped for this cause."""
        self.cursor = position
        if outcome == "delivered":
            self.delivered += size
        elif outcome == "filtered":
            self.filtered += size
        elif outcome == "thinned":
            self.thinned += size
        else:
            self.dropped[outcome] = self.dropped.get(outcome, 0) + size

    def try_at(self, position: int) -> None:
        """A record is sent, perhaps not for the first time."""
        self.repeated += position <= self.tried
        self.tried = max(self.tried, position)

    def copy(self) -> Account:
        """As it is now."""
        return msgspec.structs.replace(self, dropped=dict(self.dropped))


def owner_of(target: str) -> str:
    """Of the texts of a target."""
    return f"target/{target}"


def load(spool: Spool, target: str) -> Account:
    """The account of a target; a new one begins with what comes from now on."""
    text = spool.texts.get(owner_of(target), _KEY)
    if text is not None:
        try:
            found = msgspec.json.decode(text, type=Account)
        except msgspec.MsgspecError:
            found = Account(spool.last + 1, spool.last + 1)
        if found.cursor <= spool.last:
            return found
    return Account(spool.origin, spool.origin)


def save(spool: Spool, target: str, account: Account) -> None:
    """Soon on disk, and what all targets have may go from the spool then."""
    spool.keep(Text(owner_of(target), _KEY, msgspec.json.encode(account).decode()))


def delivered_on_disk(spool: Spool, target: str) -> int:
    """Records that a target does not get again after a kill; 0 for a target that is not on disk yet."""
    text = spool.texts.on_disk(owner_of(target), _KEY)
    return 0 if text is None else msgspec.json.decode(text, type=Account).delivered


def forget(spool: Spool, target: str) -> int:
    """Remove all texts of a target that is no more; the number of records that waited for it."""
    account = load(spool, target)
    for owner in (owner_of(target), f"{owner_of(target)}/memory"):
        for key in spool.texts.of(owner):
            spool.keep(Text(owner, key, None))
    spool.need(target, None)
    return spool.last - account.cursor


def known_targets(spool: Spool) -> list[str]:
    """The names of targets that have an account."""
    owners = [owner.split("/") for owner in spool.texts.owners if owner.startswith("target/")]
    return [names[1] for names in owners if len(names) == 2]


class SpoolMemory:
    """See `daemon.bridge.targets.opening.Memory`: the texts of a target, in the spool."""

    def __init__(self, spool: Spool, target: str) -> None:
        self._spool, self._owner = spool, f"{owner_of(target)}/memory"

    def read(self) -> Mapping[str, str]:
        return self._spool.texts.of(self._owner)

    def write(self, key: str, value: str | None) -> None:
        self._spool.keep(Text(self._owner, key, value))
