"""Records that a target wants to be told."""

from __future__ import annotations

from daemon.bridge.messages import Notice
from daemon.bridge.records import Record
from daemon.config.targets import NtfyTarget, TargetConfig, TelegramTarget, WhenConfig
from daemon.schedule import Schedule
from lookout.messages import Event


class When:
    """The rule of one target; it holds no state, so that a record is judged alike after a restart."""

    def __init__(self, target: TargetConfig) -> None:
        when = self._when = target.when
        self._kinds = frozenset[str](when.kinds)
        self._sources = None if when.sources is None else frozenset(when.sources)
        self._schedule = Schedule(when.active, when.timezone) if when.active and when.timezone else None
        # People want to know of losses where they want to know of states; programs always.
        self._wants_losses = "status" in self._kinds or not isinstance(target, NtfyTarget | TelegramTarget)

    def wants(self, record: Record) -> bool:
        if record.kind == "loss":
            return self._wants_losses
        if record.kind not in self._kinds:
            return False
        message = record.message
        if self._sources is not None and not self._is_of_sources(record, message):
            return False
        if self._schedule is not None and not self._schedule.is_active(record.at):
            return False
        return not isinstance(message, Event) or _wants_event(self._when, message)

    def _is_of_sources(self, record: Record, message: object) -> bool:
        """A daemon or a store concerns all of them."""
        assert self._sources is not None  # noqa: S101 - asked where it is not
        if isinstance(message, Notice) and message.about in ("daemon", "store"):
            return True
        return record.source in self._sources


def _wants_event(when: WhenConfig, event: Event) -> bool:
    if when.rules is not None and event.rule not in when.rules:
        return False
    if when.labels is not None and event.label not in when.labels:
        return False
    if when.events is not None and not {event.kind, f"{event.kind}.{event.phase}"}.intersection(when.events):
        return False
    if when.attributes is None:
        return True
    own = event.attribute
    return own is not None and not {own.name, f"{own.name}={own.value}"}.isdisjoint(when.attributes)
