"""Opens the connection of a target: the module of its type is loaded here, with its library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from daemon.bridge.port import Connection
from daemon.clock import Clock
from daemon.config.targets import TargetConfig
from daemon.errors import ConfigError

_EXTRA = "pip install 'lookoutd[bridge]'"


class Memory(Protocol):
    """A few texts of one target, which are kept over restarts: topics that it has retained, for example."""

    def read(self) -> Mapping[str, str]: ...

    def write(self, key: str, value: str | None) -> None:
        """Soon on disk; None removes it."""
        ...


@dataclass(frozen=True)
class TargetContext:
    """
    Attributes:
        id: of this bridge, the same after a restart; for client ids.
        daemons: names of all daemons in the bridge.
        is_trial: it tries whether the target can be told anything, perhaps beside the bridge itself: nothing that
            lasts may be changed.
    """

    id: str
    daemons: tuple[str, ...]
    memory: Memory
    clock: Clock
    is_trial: bool = False


def open_target(target: TargetConfig, context: TargetContext) -> Connection:
    """Connect, within a few seconds.

    Raises:
        AwayError: nothing answers, or it refuses the login; says which.
        ConfigError: its library is not installed, or a file of the configuration cannot be read.
    """
    kind = target.__struct_config__.tag
    try:
        module = import_module(f"daemon.bridge.targets.{kind}")
        connection: Connection = module.connect(target, context)
    except ImportError as error:
        raise ConfigError(f"target {target.name}: {kind} needs {error.name}: {_EXTRA}") from error
    return connection
