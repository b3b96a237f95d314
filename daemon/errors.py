"""What can go wrong, told in one line that says what is wrong, where, and what to do next."""

from __future__ import annotations


class LookoutError(Exception):
    """An error a user can cause and mend; the command line prints it and exits with 2."""


class StoppingError(LookoutError):
    """The daemon is stopping, and does not do what it is asked for."""

    def __init__(self) -> None:
        super().__init__("the daemon is stopping")


class ConfigError(LookoutError):
    """The configuration cannot be used; the text names the key."""


class SourceError(LookoutError):
    """This connection to a source is over; the text says why, without credentials."""


class DecodeError(LookoutError):
    """One picture of a source is lost; the connection goes on.

    Attributes:
        cause: what the frame is counted as, a field of `daemon.messages.Dropped`.
    """

    cause = "decode_error"


class PoisonedError(Exception):
    """The process can use the GPU no more, and must end; not for a source to retry after."""
