"""Sources that were changed over the network and are to outlive the process: a file beside the configuration."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
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
        content = msgspec.json.format(msgspec.json.encode(_File(rows)), indent=1)
        try:
            # A name of its own, readable by the owner alone: two that write at once must not tear each other's file.
            fd, temporary = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, self._path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
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
