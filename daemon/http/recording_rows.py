"""Recording in the API's format: of each source whether it is recorded, and of each store whether it can be used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from daemon.config.root import Config
from daemon.config.sources import SourceConfig
from daemon.recording.recordable import why_not
from daemon.redact import scrub

if TYPE_CHECKING:
    from daemon.recording.process.store_process import StoreFigures

Stores = Mapping[str, Any]


class RecordingRows:
    """
    Args:
        figures: of all stores.
        config: as it is now.
    """

    def __init__(self, figures: Callable[[], Sequence[StoreFigures]], config: Callable[[], Config]) -> None:
        self._figures, self._config = figures, config

    def by_source(self) -> dict[str, Stores]:
        """Why nothing is recorded now, by source and store; null where it is."""
        found: dict[str, Stores] = {}
        for store in self._figures():
            for row in store.accounts:
                cause, detail = (store.cause, store.detail) if store.cause else (row.cause, row.detail)
                told = {"cause": cause, "detail": scrub(detail) if detail else None}
                found[row.source] = {**found.get(row.source, {}), store.name: told}
        return found

    def of_source(self, source: SourceConfig, codec: str | None, stores: Stores) -> dict[str, Any]:
        """
        Args:
            codec: of the stream that is analysed.
            stores: of the source, from `by_source`.
        """
        reason = why_not(self._config(), source, codec)
        return {"reason": reason, "stores": {} if reason else stores}

    def stores(self) -> list[dict[str, Any]]:
        return [
            {
                "name": row.name,
                "cause": row.cause,
                "reason": scrub(row.detail) if row.detail else None,
                "bytes": row.bytes,
                "free_bytes": row.free_bytes if row.free_bytes >= 0 else None,
            }
            for row in self._figures()
        ]
