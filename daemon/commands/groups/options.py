"""Options that several groups share."""

from __future__ import annotations

from pathlib import Path

import click

from daemon.errors import ConfigError
from daemon.fleet_config import FleetConfig, fleet_of

CONFIG = click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    default="config.yaml",
    show_default=True,
    help="Configuration file.",
)
CACHE = click.option("--cache", type=click.Path(path_type=Path), help="Cache folder.  [default: ~/.cache/lookout]")
ENDPOINT = "tcp://127.0.0.1:5556"
FIRST_MODEL = "yolox_nano"  # small, fast on any machine, and of a permissive licence
FLEET = click.option(
    "--fleet",
    metavar="ADDRESS|FILE",
    help="Follow the members of a fleet: etcd://HOST:2379/NAME, or a configuration that has it.",
)


def fleet_from(text: str | None) -> FleetConfig | None:
    """The fleet of an option's value.

    Raises:
        ConfigError: it names none.
    """
    if text is None:
        return None
    if "://" in text:
        return fleet_of(text)
    from daemon.config import load

    fleet = load(Path(text)).fleet
    if fleet.coordinator is None:
        raise ConfigError(f"{text}: has no fleet.coordinator")
    return fleet
