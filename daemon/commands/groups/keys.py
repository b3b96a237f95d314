"""The group `keys`."""

from __future__ import annotations

import re
from pathlib import Path

import click

from daemon.commands.groups.options import examples
from daemon.commands.paths import OutputFolder


@click.group()
def keys() -> None:
    """CURVE keys for the publisher."""


@keys.command(epilog=examples("lookout keys new keys/", "lookout keys new keys/ --name client"))
@click.argument("folder", type=OutputFolder(), default=".")
@click.option("--name", default="lookout", show_default=True)
def new(folder: Path, name: str) -> int:
    """Write a key pair to FOLDER: NAME.key for subscribers, NAME.key_secret for the daemon alone."""
    from daemon.publish.curve_keys import new_pair

    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name) or not name.strip("."):
        raise click.UsageError(f"--name {name!r} may hold letters, digits, '_', '.' and '-' only: FOLDER says where")
    public, secret = new_pair(folder, name)
    click.echo(f"{secret}: for publisher.curve.secret_key_file; keep it to the daemon\n{public}: for subscribers")
    return 0
