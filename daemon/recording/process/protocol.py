"""The messages between the daemon and the process of a store."""

from __future__ import annotations

from daemon.capture.processes.protocol import ProcessMessage
from daemon.recording.absence import Absence
from daemon.recording.causes import Cause
from daemon.recording.clips import Claim, ClipState
from daemon.recording.source_recorder import Account, Settings

# --- to the process --------------------------------------------------------------------------------------------------


class Record(ProcessMessage, frozen=True, tag=1):
    """Record a source; the descriptor of its ring comes with it."""

    source: str
    settings: Settings


class Configure(ProcessMessage, frozen=True, tag=2):
    """Record it in another way from now on."""

    source: str
    settings: Settings


class Forget(ProcessMessage, frozen=True, tag=3):
    """Record it no more, and say why.

    Attributes:
        at: since when, UTC ns.
        number: for the answer.
    """

    source: str
    cause: Cause
    detail: str
    at: int
    number: int


class Noted(ProcessMessage, frozen=True, tag=4):
    """Nothing comes from a source from a time on, UTC ns."""

    source: str
    at: int
    cause: Cause
    detail: str | None


class Claimed(ProcessMessage, frozen=True, tag=5):
    """An event wants what is around it."""

    source: str
    claim: Claim


class Tracks(ProcessMessage, frozen=True, tag=7):
    """Take the analysed pictures of all sources from a ring; its descriptor comes with this."""


class Others(ProcessMessage, frozen=True, tag=8):
    """Why all other sources are not recorded; comes after those that are."""

    absence: Absence


class Stop(ProcessMessage, frozen=True, tag=6):
    """Finish all files, and end."""


ToRecorder = Record | Configure | Forget | Noted | Claimed | Stop | Tracks | Others

# --- from the process ------------------------------------------------------------------------------------------------


class Beat(ProcessMessage, frozen=True, tag=1):
    """How it goes; every second.

    Attributes:
        cause, detail: why nothing can be written to the store; None if it can.
        uuid: of the store, once it was found.
        bytes: of its recordings.
        free_bytes: of its disk; -1 if unknown.
        claims: that this process was told of; the one after it knows what they want.
    """

    cause: Cause | None
    detail: str | None
    uuid: str | None
    bytes: int
    free_bytes: int
    claims: int


class Accounts(ProcessMessage, frozen=True, tag=4):
    """Some of the accounts of sources; all of them come before a `Beat`."""

    rows: list[Account]


class ClipTold(ProcessMessage, frozen=True, tag=2):
    """A clip has begun, or is over.

    Attributes:
        begin, end: UTC ns.
        covered: ns that are in files.
    """

    source: str
    id: str
    events: list[str]
    begin: int
    end: int
    covered: int
    state: ClipState


class Failed(ProcessMessage, frozen=True, tag=3):
    """The process cannot go on."""

    reason: str


class Forgotten(ProcessMessage, frozen=True, tag=5):
    """A source is recorded no more, and the store knows why."""

    number: int


FromRecorder = Beat | Accounts | ClipTold | Failed | Forgotten
