"""The page."""

from __future__ import annotations

from pathlib import Path

import click

from daemon.commands.groups.options import CONFIG, examples


@click.command(
    epilog=examples(
        "lookout dashboard -c config.yaml",
        "lookout dashboard hall=http://192.0.2.7:9105 yard=http://192.0.2.8:9105",
    )
)
@click.argument("endpoints", nargs=-1, metavar="[ENDPOINT]...")
@CONFIG
@click.option("--port", type=click.IntRange(0, 65535), help="Of the page.  [default: dashboard.port]")
@click.option("--token", envvar="LOOKOUT_TOKEN", help="Of the daemons' HTTP APIs; better from LOOKOUT_TOKEN.")
@click.pass_context
def dashboard(
    context: click.Context, endpoints: tuple[str, ...], config: Path, port: int | None, token: str | None
) -> int:
    """Show daemons in a browser: live video with boxes, events, health, sources and rules.

    Each ENDPOINT is the HTTP API of a daemon (http://HOST:9105), where its messages come from (tcp://HOST:5556), or
    both with a comma; NAME= may stand before. Without one, the configuration file says what there is.
    """
    from daemon.commands.dashboard import dashboard as run_dashboard

    is_given = context.get_parameter_source("config") != click.core.ParameterSource.DEFAULT
    path = config if is_given or not endpoints else None
    return run_dashboard(path, endpoints, token, port)
