"""Errors. Each message is one line: the fault, its place, and the next step for the user."""

from __future__ import annotations

from lookout.errors import ConfigError, LookoutError

__all__ = [
    "ConfigError", "CorruptError", "DecodeError", "LoginRefusedError", "LookoutError", "NoKeyError", "OutputError",
    "PoisonedError", "SourceError", "StoppingError",
]  # fmt: skip


class StoppingError(LookoutError):
    """The daemon is stopping and refuses the request."""

    def __init__(self) -> None:
        super().__init__("the daemon is stopping")


class OutputError(Exception):
    """Standard output takes nothing more, such as a file on a full disk; the command line exits with 1."""


class SourceError(LookoutError):
    """This connection to a source is over; the text says why, without credentials."""


class LoginRefusedError(SourceError):
    """A source refuses the login. More tries may lock the account, so they are rare."""


class DecodeError(LookoutError):
    """One picture of a source is lost; the connection goes on.

    Attributes:
        cause: the drop cause, a field of `lookout.messages.Dropped`.
        awaits_key: no key picture has come since the last picture that was decoded, so that none can be expected.
    """

    cause = "decode_error"
    awaits_key = False

    def await_key(self) -> None:
        self.awaits_key = True


class CorruptError(DecodeError):
    """The decoder found errors in a picture."""

    cause = "corrupt"


class NoKeyError(DecodeError):
    """A picture came before the first key picture of its connection."""

    cause = "before_key"
    awaits_key = True


class PoisonedError(Exception):
    """The GPU no longer works in this process. The process must end; a source does not retry."""
