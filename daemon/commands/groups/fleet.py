"""The group `fleet`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from daemon.commands.groups.options import CONFIG, examples
from daemon.commands.numbers import Number
from daemon.commands.paths import InputPath, OutputFile

_Command = Callable[..., int]
_PRIORITY = click.IntRange(-1_000_000, 1_000_000)


def _connected(command: _Command) -> _Command:
    """Options that name the coordinator; see `daemon.commands.fleet.opened`."""
    options = (
        CONFIG,
        click.option("--coordinator", metavar="URL", help="Instead of a file: etcd://HOST:2379."),
        click.option("--name", help="Of the fleet.  [default: fleet.name]"),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group()
def fleet() -> None:
    """Daemons that share their sources: docs/fleet.md. The coordinator is that of `fleet` in the configuration file,
    which may have nothing else."""


@fleet.command(epilog=examples("lookout fleet status --coordinator etcd://192.0.2.5:2379 --sources"))
@_connected
@click.option("--sources", "every_source", is_flag=True, help="All sources, and not only those without their owner.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def status(every_source: bool, as_json: bool, **where: Any) -> int:
    """Show members with their load, and sources without an owner with the reason."""
    import msgspec
    from rich.console import Console

    from daemon.commands import fleet as fleets
    from daemon.commands.fleet_tables import show_status

    with fleets.opened(**where) as found:
        shown = fleets.status(found)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(shown), indent=1))
    else:
        show_status(shown, Console(), every_source=every_source)
    return 0


@fleet.command(
    epilog=examples(
        "lookout fleet add -c config.yaml --from cameras.yaml",
        "lookout fleet add rtsp://192.0.2.10/stream1 --id door -c config.yaml",
    )
)
@click.argument("sources", nargs=-1, metavar="[SOURCE]...")
@_connected
@click.option("--from", "file", type=InputPath(), metavar="FILE", help="Its list `sources`.")
@click.option("--id", help="Of the only SOURCE.")
@click.option("--priority", default=0, show_default=True, type=_PRIORITY, help="Lower ones wait where room is short.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="The owner must have it. Repeat it.")
@click.option("--replace", is_flag=True, help="Also sources that are there with another configuration.")
def add(
    sources: tuple[str, ...],
    file: Path | None,
    id: str | None,
    priority: int,
    labels: tuple[str, ...],
    replace: bool,
    **where: Any,
) -> int:
    """Add SOURCEs, as `lookout run` takes them, or those of a FILE. ${NAME} is replaced by the source's owner."""
    from daemon.commands import fleet as fleets
    from daemon.commands.fleet_rows import Placing, labels_of

    placing = Placing(priority, labels_of(labels), id)
    with fleets.opened(**where) as found:
        fleets.add(found, sources, file, placing, replace=replace)
    return 0


@fleet.command(epilog=examples("lookout fleet remove door -c config.yaml"))
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@_connected
def remove(sources: tuple[str, ...], **where: Any) -> int:
    """Remove SOURCEs, by their ids. Their owners stop them."""
    from daemon.commands import fleet as fleets

    with fleets.opened(**where) as found:
        fleets.remove(found, sources)
    return 0


@fleet.command(epilog=examples("lookout fleet drain hall/gpu0 --reason upgrade --wait -c config.yaml"))
@click.argument("member")
@_connected
@click.option("--reason", default="drained by an operator", show_default=True, help="Shown by status.")
@click.option("--wait", is_flag=True, help="Until its sources are elsewhere; exit code 1 if they are not in time.")
@click.option("--timeout", default=60.0, show_default=True, type=Number(0, 86_400), help="Seconds of --wait.")
def drain(member: str, reason: str, wait: bool, timeout: float, **where: Any) -> int:
    """Move all sources of MEMBER to others, before maintenance. It gets none until `undrain`."""
    from daemon.commands import fleet as fleets

    with fleets.opened(**where) as found:
        return fleets.drain(found, member, reason, timeout if wait else None)


@fleet.command(epilog=examples("lookout fleet undrain hall/gpu0 -c config.yaml"))
@click.argument("member")
@_connected
def undrain(member: str, **where: Any) -> int:
    """Let MEMBER have sources again. None is moved back by itself: see `rebalance`."""
    from daemon.commands import fleet as fleets

    with fleets.opened(**where) as found:
        fleets.undrain(found, member)
    return 0


@fleet.command(epilog=examples("lookout fleet move door yard hall/gpu0 -c config.yaml"))
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("member")
@_connected
@click.option("--no-pin", is_flag=True, help="They may be moved again; it also takes a pin back.")
def move(sources: tuple[str, ...], member: str, no_pin: bool, **where: Any) -> int:
    """Move SOURCEs to MEMBER, and keep them there while it can have them."""
    from daemon.commands import fleet as fleets

    with fleets.opened(**where) as found:
        fleets.move(found, sources, member, pinned=not no_pin)
    return 0


@fleet.command(epilog=examples("lookout fleet rebalance --dry-run -c config.yaml"))
@_connected
@click.option("--dry-run", is_flag=True, help="Only show the moves.")
def rebalance(dry_run: bool, **where: Any) -> int:
    """Move sources from full members to empty ones, for example to a new one. Each move interrupts a source."""
    from rich.console import Console

    from daemon.commands import fleet as fleets
    from daemon.commands.fleet_tables import show_rebalance
    from daemon.fleet.operations import rebalanced

    with fleets.opened(**where) as found:
        show_rebalance(rebalanced(found.coordinator, dry_run=dry_run), Console(), dry_run=dry_run)
    return 0


@fleet.command(epilog=examples("lookout fleet backup fleet.json -c config.yaml"))
@click.argument("file", type=OutputFile())
@_connected
def backup(file: Path, **where: Any) -> int:
    """Write sources, drains and pins to FILE, readable by you alone. ${NAME} stays as it is."""
    from daemon.commands import fleet as fleets

    with fleets.opened(**where) as found:
        fleets.backup(found, file)
    return 0


@fleet.command(epilog=examples("lookout fleet restore fleet.json -c config.yaml"))
@click.argument("file", type=InputPath())
@_connected
@click.option("--replace", is_flag=True, help="Also sources that are there with another configuration.")
def restore(file: Path, replace: bool, **where: Any) -> int:
    """Write what `backup` has written to FILE. Sources that are not in it stay."""
    from daemon.commands import fleet as fleets

    with fleets.opened(**where) as found:
        fleets.restore(found, file, replace=replace)
    return 0
