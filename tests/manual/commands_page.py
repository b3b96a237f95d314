"""lookout(1): every command with its options and examples, as its --help has them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from datetime import date

import click

from daemon.cli import cli
from tests.manual.roff import example, head, heading, item, paragraphs

_EXIT_CODES = {
    "0": "It is done; for `run`: stopped by SIGTERM or SIGINT, or every recording has ended.",
    "1": "It is not as it should be: see the command. Or standard output cannot be written.",
    "2": "A mistake that you can correct. One line on standard error says which.",
    "3": "The detector, the publisher or another part failed while running.",
    "4": "One of them hung in a library.",
    "5": "A lossless replay or a batch was stopped before its end.",
    "130": "Ctrl-C ended a command that had not begun to run a daemon.",
}
_ENVIRONMENT = {
    "LOOKOUT_TOKEN": "The token of a daemon's HTTP API, for `events`, `dashboard` and `bridge`.",
    "CAMERA_PASSWORD": "The password of cameras, for `cameras`.",
    "CACHE_DIRECTORY": "Where engines and measurements are kept, instead of ~/.cache/lookout.",
    "XDG_DATA_HOME": "Downloaded models lie in its folder lookout/models, instead of that of ~/.local/share.",
    "HTTPS_PROXY, NO_PROXY": "For downloads of models.",
}
_FILES = {
    "config.yaml": "The configuration, in the folder where a command is started, unless -c names another.",
    "/etc/lookout/config.yaml": "That of the service.",
    "/etc/lookout/environment": "Variables of the service. Commands read such a file beside any configuration.",
}


def commands_page(day: date) -> str:
    """The text of the page."""
    parts = [
        head("lookout", 1, day),
        heading("NAME"),
        r"lookout \- real\-time video analytics: cameras and recordings in, detections out over ZeroMQ",
        heading("SYNOPSIS"),
        r".B lookout \fICOMMAND\fR [\fIOPTIONS\fR] [\fIARGUMENTS\fR]",
        heading("DESCRIPTION"),
        *paragraphs(
            "Lookout reads cameras and recordings, runs a detector on every frame it can, and publishes the boxes, "
            "with tracks and events where they are asked for.\n\n"
            "`lookout demo` shows it at work without a camera and without a network. `lookout run SOURCE` runs it on "
            "yours. `lookout COMMAND --help` shows what stands here."
        ),
        heading("COMMANDS"),
        *_commands(click.Context(cli, info_name="lookout"), cli),
        heading("EXIT STATUS"),
        *_items(_EXIT_CODES),
        heading("ENVIRONMENT"),
        *_items(_ENVIRONMENT),
        heading("FILES"),
        *_items(_FILES),
        heading("SEE ALSO"),
        r".BR lookout.yaml (5)",
    ]
    return "\n".join(parts) + "\n"


def _items(rows: Mapping[str, str]) -> Iterator[str]:
    for name, text in rows.items():
        yield item(name, text)


def _commands(context: click.Context, group: click.Group) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        inner = click.Context(command, info_name=name, parent=context)
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield from _command(inner, command)
        if isinstance(command, click.Group):
            yield from _commands(inner, command)


def _command(context: click.Context, command: click.Command) -> Iterator[str]:
    yield heading(" ".join([context.command_path, *command.collect_usage_pieces(context)]), 2)
    yield from paragraphs(inspect.cleandoc(command.help or ""))
    for option in command.get_params(context):
        record = option.get_help_record(context)
        if record is not None and record[1] and "--help" not in option.opts:
            yield item(*record)
    if command.epilog:
        yield ".PP"
        yield example(line.strip() for line in command.epilog.splitlines()[2:])
