"""Reports of a member to the coordinator: only changes are sent."""

from __future__ import annotations

from collections.abc import Mapping

from daemon.clock import Clock
from daemon.fleet.records import MemberRecord, StreamFormat

_PICTURES_NS = 2_000_000_000  # between two reports of videos


class Reports:
    """Those of one membership: its records end with it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._record: MemberRecord | None = None
        self._refused: dict[str, str] = {}
        self._pictures: dict[str, StreamFormat] = {}
        self._pictures_ns = 0

    def is_new(self, record: MemberRecord) -> bool:
        return record != self._record

    def note_record(self, record: MemberRecord) -> None:
        """It was reported."""
        self._record = record

    def new_refusals(self, refused: Mapping[str, str]) -> dict[str, str | None]:
        """Reasons to report; None takes one back."""
        taken_back: dict[str, str | None] = dict.fromkeys(self._refused.keys() - refused.keys())
        return taken_back | {id: reason for id, reason in refused.items() if self._refused.get(id) != reason}

    def note_refusals(self, reasons: Mapping[str, str | None]) -> None:
        """They were reported."""
        for id, reason in reasons.items():
            if reason is None:
                self._refused.pop(id, None)
            else:
                self._refused[id] = reason

    def new_pictures(self, pictures: Mapping[str, StreamFormat]) -> dict[str, StreamFormat]:
        """Videos that are not as they were reported; none before some time has passed since the last call."""
        now = self._clock.monotonic_ns()
        if now - self._pictures_ns < _PICTURES_NS:
            return {}
        self._pictures_ns = now
        return {id: picture for id, picture in pictures.items() if self._pictures.get(id) != picture}

    def note_pictures(self, pictures: Mapping[str, StreamFormat]) -> None:
        """They were reported."""
        self._pictures |= pictures
