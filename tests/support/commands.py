"""The commands of a command line."""

from __future__ import annotations

from collections.abc import Iterator

import click


def leaves(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Each command that can be run, hidden ones as well, by what is typed behind the program's name."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield path, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from leaves(inner, f"{path} {name}".strip())
