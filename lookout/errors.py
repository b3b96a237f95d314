"""Errors that a user can correct. Each message is one line: the fault, its place, and the next step."""

from __future__ import annotations

from collections.abc import Sequence


class LookoutError(Exception):
    """An error that a user can cause and correct; the command line prints it and exits with 2."""


class ConfigError(LookoutError):
    """The configuration cannot be used; the text names the key.

    Attributes:
        mistakes: one line for each, where there are several; the text has the first ones.
    """

    def __init__(self, text: str, mistakes: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.mistakes = tuple(mistakes)
