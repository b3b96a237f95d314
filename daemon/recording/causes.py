"""Why a second is not recorded."""

from __future__ import annotations

from typing import Final, Literal, get_args

Cause = Literal[
    "source_down", "no_key", "network", "disk_slow", "disk_full", "disk_error", "store_away", "store_hung",
    "recorder_down", "daemon_down", "off", "no_event", "codec", "fenced", "clock", "expired",
    "unread",
]  # fmt: skip
LASTING: Final[tuple[Cause, ...]] = ("off", "fenced")  # gaps go on until the source is recorded again
RECORDED: Final[tuple[Cause, ...]] = ("expired", "unread")  # there was video: not counted as missing
CAUSES: Final[tuple[str, ...]] = get_args(Cause)
MEANINGS: Final[dict[str, str]] = {
    "source_down": "the camera gave no video; the detail says why",
    "no_key": "video came, and no key picture yet that a player could begin with",
    "network": "packets were lost between the camera and here",
    "disk_slow": "the store did not write as fast as video came",
    "disk_full": "no room, and nothing that may be deleted",
    "disk_error": "the store refused to write",
    "store_away": "the folder is not mounted, or is another store",
    "store_hung": "a write did not return",
    "recorder_down": "the process that writes was down for longer than memory could hold",
    "daemon_down": "Lookout did not run",
    "off": "recording was off",
    "no_event": "no event wanted it",
    "codec": "video that cannot be recorded",
    "fenced": "the source was no more this member's of the fleet",
    "clock": "the time of day was set",
    "expired": "it was deleted, as the limits of the store say",
    "unread": "the index is being made, and may not know it yet",
}
