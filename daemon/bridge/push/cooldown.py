"""After a message of a source and rule, more of them are left out for a while."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from daemon.bridge.records import Record
from lookout.messages import Event

_MOST = 10_000  # pairs of source and rule that are remembered


class Cooldown:
    """Of one target, by the records' own times: a record that comes late is judged by when it happened. A restart of
    the bridge forgets it, so a message more may come then. One thread.

    Args:
        seconds: 0 admits all.
    """

    def __init__(self, seconds: float) -> None:
        self._ns = round(seconds * 1e9)
        self._last: OrderedDict[tuple[str, ...], int] = OrderedDict()

    def admits(self, record: Record) -> bool:
        """Whether it is told; asked once for each. Notices and losses always are: each tells a change."""
        if not self._ns or record.kind in ("status", "loss"):
            return True
        key = record.kind, record.daemon, record.source, _rule(record)
        last = self._last.get(key)
        if last is not None and abs(record.at - last) < self._ns:
            return False
        self._last[key] = record.at  # also an earlier one: the clock of the machine may have been set back
        self._last.move_to_end(key)
        if len(self._last) > _MOST:
            self._last.popitem(last=False)
        return True


def _rule(record: Record) -> str:
    try:
        message = record.message
    except msgspec.MsgspecError:
        return ""
    return (message.rule or "") if isinstance(message, Event) else ""
