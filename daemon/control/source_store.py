"""Sources that were changed over the network and are to outlive the process: a file beside the configuration."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import structlog

from daemon.config import Config, SourceConfig, check, load, source_of
from daemon.errors import ConfigError
from daemon.redact import written_of

_HEAD = "written by Lookout: sources persisted over the API, which take the place of those in the configuration"


log = structlog.get_logger(__name__)


class _File(msgspec.Struct, frozen=True):
    sources: list[dict[str, Any]]
    about: str = _HEAD


class SourceStore:
    """The file; readable by its owner alone, because URLs may hold passwords."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def exists(self) -> bool:
        """Its sources take the place of those in the configuration."""
        return self.path.exists()

    def tidy(self) -> None:
        """Remove what a process that was killed while it wrote has left; it may hold passwords. For the start alone."""
        with suppress(OSError):
            for left in self.path.parent.glob(f".{self.path.name}.*"):
                left.unlink()

    def write(self, sources: Sequence[SourceConfig]) -> None:
        """Whole or not at all.

        Raises:
            ConfigError: it cannot be written.
        """
        rows = [msgspec.to_builtins(source, enc_hook=written_of) for source in sources]
        content = msgspec.json.format(msgspec.json.encode(_File(rows)), indent=1)
        try:
            # A name of its own, readable by the owner alone: two that write at once must not tear each other's file.
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

    def over(self, config: Config) -> Config:
        """The configuration with its sources, if there are any.

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
            raise ConfigError(f"http.sources_file: {self.path} is damaged: {error}; mend it or remove it") from error
        return check(msgspec.structs.replace(config, sources=sources), may_be_empty=True)


def load_whole(path: Path) -> Config:
    """The configuration file, with the sources that were persisted over it.

    Raises:
        ConfigError: one of the two cannot be read.
    """
    found = load(path)
    return SourceStore(found.http.sources_file).over(found) if found.http.sources_file else found


def tell_whose_sources(config: Config) -> None:
    """Log it where the configuration file's sources are not those that count."""
    file = config.http.sources_file
    if file is not None and SourceStore(file).exists:
        words = "sources are those that were persisted over the API: the configuration file's are not used"
        log.warning(words, file=str(file))
