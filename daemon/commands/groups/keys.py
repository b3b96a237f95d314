"""The group `keys`."""

from __future__ import annotations

from pathlib import Path

import click


@click.group()
def keys() -> None:
    """CURVE keys for the publisher."""


@keys.command()
@click.argument("folder", type=click.Path(path_type=Path), default=".")
@click.option("--name", default="lookout", show_default=True)
def new(folder: Path, name: str) -> int:
    """Write a key pair to FOLDER: NAME.key for subscribers, NAME.key_secret for the daemon alone."""
    from daemon.publish.curve import new_pair

    public, secret = new_pair(folder, name)
    click.echo(f"{secret}: for publisher.curve.secret_key_file; keep it to the daemon\n{public}: for subscribers")
    return 0
