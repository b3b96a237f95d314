"""Whether footage goes by its age: it does not grow old because the time of day was set ahead."""

from __future__ import annotations

from typing import Final

import structlog

log = structlog.get_logger(__name__)
_SECOND_NS: Final = 1_000_000_000
_TRUST_NS: Final = 24 * 3600 * _SECOND_NS  # ages count again so long after the clock was set ahead
_JUMP_NS: Final = 60 * _SECOND_NS


class FootageAge:
    """One thread uses it.

    Args:
        utc, boot: the time of day, and the clock that nobody sets; ns.
    """

    def __init__(self, utc: int, boot: int) -> None:
        self._offset = utc - boot
        self._distrusted_until = 0  # BOOTTIME ns

    def look(self, utc: int, boot: int) -> None:
        """Compare both clocks, now and then."""
        step, self._offset = utc - boot - self._offset, utc - boot
        if step > _JUMP_NS:
            log.warning("the time of day was set ahead: no footage goes by its age for a day", seconds=step // 10**9)
            self._distrusted_until = boot + _TRUST_NS

    def counts(self, boot: int) -> bool:
        """Whether ages are those of the footage."""
        return boot >= self._distrusted_until
