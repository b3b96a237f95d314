"""Trouble of a store."""

from __future__ import annotations

from daemon.errors import LookoutError
from daemon.recording.causes import Cause


class StoreError(LookoutError):
    """Nothing can be written to a store now.

    Attributes:
        cause: of the gap that this makes.
    """

    def __init__(self, message: str, cause: Cause = "disk_error") -> None:
        super().__init__(message)
        self.cause: Cause = cause


class StoreFullError(StoreError):
    """There is no room: by the disk, by a quota, or by a limit of the configuration."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "disk_full")


class StoreAwayError(StoreError):
    """The folder is not the store that it should be: not mounted, without its marker, or with another one's."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "store_away")
