"""Errors that a user can correct. Each message is one line: the fault, its place, and the next step."""

from __future__ import annotations


class LookoutError(Exception):
    """An error that a user can cause and correct; the command line prints it and exits with 2."""


class ConfigError(LookoutError):
    """The configuration cannot be used; the text names the key."""
