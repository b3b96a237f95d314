"""Sources that were changed over the network and are to outlive the process: a file beside the configuration."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from daemon.config import Config, SourceConfig, check, source_of
from daemon.errors import ConfigError
from daemon.redact import Secret

_HEAD = "written by Lookout: sources persisted over the API, which take the place of those in the configuration"


class _File(msgspec.Struct, frozen=True):
    sources: list[dict[str, Any]]
    about: str = _HEAD


class Kept:
    """The file; readable by its owner alone, because URLs may hold passwords."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, sources: Sequence[SourceConfig]) -> None:
        """Whole or not at all.

        Raises:
            ConfigError: it cannot be written.
        """
        rows = [msgspec.to_builtins(source, enc_hook=_reveal) for source in sources]
        temporary = self._path.with_suffix(".new")
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(_File(rows)), indent=1))
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._path)
        except OSError as error:
            raise ConfigError(f"http.sources_file: {self._path} cannot be written: {error.strerror}") from error

    def over(self, config: Config) -> Config:
        """The configuration with its sources, if there are any.

        Raises:
            ConfigError: the file is damaged.
        """
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return config
        except OSError as error:
            raise ConfigError(f"http.sources_file: {self._path} cannot be read: {error.strerror}") from error
        try:
            rows = msgspec.json.decode(content, type=_File).sources
            sources = [source_of(row) for row in rows]
        except (msgspec.MsgspecError, ConfigError) as error:
            raise ConfigError(f"http.sources_file: {self._path} is damaged: {error}; mend it or remove it") from error
        return check(msgspec.structs.replace(config, sources=sources), may_be_empty=True)


def _reveal(value: object) -> str:
    return value.reveal() if isinstance(value, Secret) else str(value)
