"""Secrets of the configuration, or of a file that is read each time, so that a new one needs no restart."""

from __future__ import annotations

from pathlib import Path

from daemon.errors import ConfigError, LookoutError
from daemon.files import read_text
from daemon.redact import Secret


def secret_of(
    target: str, key: str, secret: Secret | None, file: Path | None, error: type[LookoutError] = ConfigError
) -> str | None:
    """A secret of one line; None without one.

    Args:
        target, key: for the error.
        error: to raise.
    """
    if file is None:
        return secret.reveal() if secret is not None else None
    lines = lines_of(target, key, file, error)
    if len(lines) != 1 or not (lines[0].isascii() and lines[0].isprintable()):
        raise error(f"target {target}: {key}: {file} needs one line of plain text")
    return lines[0]


def lines_of(target: str, key: str, file: Path, error: type[LookoutError] = ConfigError) -> list[str]:
    """The lines of a file that are not empty."""
    try:
        text = read_text(file)
    except OSError as failure:
        raise error(f"target {target}: {key}: {file} cannot be read: {failure.strerror}") from failure
    return [line.strip() for line in text.splitlines() if line.strip()]
