"""Persists sources that were changed over the API, in a file beside the configuration."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import structlog

from daemon.config.load import load, source_of
from daemon.config.root import Config, check
from daemon.config.sources import SourceConfig
from daemon.errors import ConfigError
from daemon.redact import written_of

_HEAD = "written by Lookout: sources persisted over the API, which take the place of those in the configuration"


log = structlog.get_logger(__name__)


class _File(msgspec.Struct, frozen=True):
    sources: list[dict[str, Any]]
    about: str = _HEAD


class SourceStore:
    """The file, readable by its owner only, because URLs may hold passwords."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def exists(self) -> bool:
        """Whether the file's sources replace those of the configuration."""
        return self.path.exists()

    def remove_leftovers(self) -> None:
        """At the start: remove temporary files of a process that was killed; they may hold passwords."""
        with suppress(OSError):
            for left in self.path.parent.glob(f".{self.path.name}.*"):
                left.unlink()

    def write(self, sources: Sequence[SourceConfig]) -> None:
        """Write the file atomically.

        Raises:
            ConfigError: it cannot be written.
        """
        rows = [msgspec.to_builtins(source, enc_hook=written_of) for source in sources]
        content = msgspec.json.format(msgspec.json.encode(_File(rows)), indent=1)
        try:
            # Each writer has a temporary file of its own, so that concurrent writes do not mix.
            fd, temporary = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, self.path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
        except OSError as error:
            raise ConfigError(f"http.sources_file: {self.path} cannot be written: {error.strerror}") from error

    def apply_to(self, config: Config) -> Config:
        """The configuration with the file's sources, if the file exists.

        Raises:
            ConfigError: the file is damaged.
        """
        try:
            if self.path.exists() and not self.path.is_file():
                raise ConfigError(f"http.sources_file: {self.path} is not a file")
            content = self.path.read_bytes()
        except FileNotFoundError:
            return config
        except OSError as error:
            raise ConfigError(f"http.sources_file: {self.path} cannot be read: {error.strerror}") from error
        try:
            rows = msgspec.json.decode(content, type=_File).sources
            sources = [source_of(row) for row in rows]
        except (msgspec.MsgspecError, ConfigError) as error:
            raise ConfigError(f"http.sources_file: {self.path} is damaged: {error}; repair or remove it") from error
        return check(msgspec.structs.replace(config, sources=sources), may_be_empty=True)


def load_effective(path: Path) -> Config:
    """The configuration file with the persisted sources.

    Raises:
        ConfigError: one of the two files cannot be read.
    """
    found = load(path)
    return SourceStore(found.http.sources_file).apply_to(found) if found.http.sources_file else found


def warn_if_overridden(config: Config) -> None:
    """Log a warning if persisted sources replace those of the configuration file."""
    file = config.http.sources_file
    if file is not None and SourceStore(file).exists:
        message = "sources persisted over the API are used: the configuration file's are not used"
        log.warning(message, file=str(file))
