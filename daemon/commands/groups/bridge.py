"""The bridge."""

from __future__ import annotations

from pathlib import Path

import click

from daemon.commands.groups.options import CONFIG


@click.group(invoke_without_command=True)
@CONFIG
@click.option("--token", envvar="LOOKOUT_TOKEN", help="Of the daemons' HTTP APIs; better from LOOKOUT_TOKEN.")
@click.pass_context
def bridge(context: click.Context, config: Path, token: str | None) -> int | None:
    """Pass events, states and figures on to MQTT, Kafka, a phone and so on: docs/bridges.md.

    Without a command it runs until SIGTERM or SIGINT; SIGHUP reads the targets of the configuration again.
    """
    context.obj = config
    if context.invoked_subcommand is not None:
        return None
    from daemon.commands import bridge as commands

    return commands.run(config, token)


@bridge.command()
@click.pass_obj
def check(config: Path) -> int:
    """Connect to each target, and say what was found: `lookout bridge -c FILE check`."""
    from daemon.commands import bridge as commands

    return commands.check(config)


@bridge.command()
@click.argument("target")
@click.pass_obj
def test(config: Path, target: str) -> int:
    """Send one of each kind to TARGET, marked as a trial."""
    from daemon.commands import bridge as commands

    return commands.test(config, target)
