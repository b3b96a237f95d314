"""The bridge."""

from __future__ import annotations

from pathlib import Path

import click

from daemon.commands.groups.options import CONFIG, PID, examples
from daemon.errors import LookoutError


@click.group(invoke_without_command=True, epilog=examples("lookout bridge -c config.yaml"))
@CONFIG
@click.option("--token", envvar="LOOKOUT_TOKEN", help="Of the daemons' HTTP APIs; better from LOOKOUT_TOKEN.")
@click.pass_context
def bridge(context: click.Context, config: Path, token: str | None) -> int | None:
    """Pass events, states and figures on to MQTT, Kafka, a phone and so on: docs/bridges.md.

    Without a command it runs until SIGTERM or SIGINT; SIGHUP reads the targets of the configuration again.
    """
    command = context.invoked_subcommand
    if command is not None:
        if context.get_parameter_source("config") == click.core.ParameterSource.COMMANDLINE:
            raise LookoutError(f"-c stands behind the command: lookout bridge {command} -c {config}")
        return None
    from daemon.commands import bridge as commands

    return commands.run(config, token)


@bridge.command(epilog=examples("lookout bridge check -c config.yaml"))
@CONFIG
def check(config: Path) -> int:
    """Connect to each target, and say what was found; 2 if one cannot be told anything."""
    from daemon.commands import bridge as commands

    return commands.check(config)


@bridge.command(epilog=examples("lookout bridge reload -c config.yaml --pid 4711"))
@CONFIG
@click.option("--pid", required=True, type=PID, help="Of the bridge.")
def reload(config: Path, pid: int) -> int:
    """Have the bridge that runs with this configuration read its targets again; 2 with the reason if it refuses."""
    from daemon.commands import bridge as commands

    click.echo(commands.ask_to_reload(config, pid))
    return 0


@bridge.command(epilog=examples("lookout bridge test phone -c config.yaml"))
@click.argument("target")
@CONFIG
def test(target: str, config: Path) -> int:
    """Send one of each kind to TARGET, marked as a trial; 2 if it does not take them."""
    from daemon.commands import bridge as commands

    return commands.test(config, target)
