"""The messages between the daemon and its process of streams. `stream` is a number that is never used again."""

from __future__ import annotations

from daemon.capture.processes.protocol import NoRecord, ProcessMessage, Record
from lookout.messages import State

# --- to the process --------------------------------------------------------------------------------------------------
# `Record` and `NoRecord` are those of capture processes: their `capture` is the number of a stream.


class Begin(ProcessMessage, frozen=True, tag=1):
    """Connect a stream.

    Attributes:
        config: a pickled `daemon.config.sources.AvConfig`.
    """

    stream: int
    config: bytes


class End(ProcessMessage, frozen=True, tag=2):
    stream: int


class Stop(ProcessMessage, frozen=True, tag=3):
    """End the process."""


ToStreams = Begin | End | Stop | Record | NoRecord

# --- from the process ------------------------------------------------------------------------------------------------


class StreamChanged(ProcessMessage, frozen=True, tag=1):
    """A stream's state has changed.

    Attributes:
        state, reason, retry_in_s: as those of sources; it is `up` with its first packet.
        utc: since when, ns.
    """

    stream: int
    session: str
    state: State
    reason: str | None
    retry_in_s: float | None
    utc: int


class Beat(ProcessMessage, frozen=True, tag=2):
    """Sent every moment."""


class Failed(ProcessMessage, frozen=True, tag=3):
    """The process cannot go on."""

    reason: str


FromStreams = StreamChanged | Beat | Failed
