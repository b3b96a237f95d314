"""The group `recordings`."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from pathlib import Path
from typing import Any

import click

from daemon.commands.groups.options import CONFIG, examples
from daemon.commands.numbers import Number
from daemon.commands.paths import InputName, InputPath, OutputFile, OutputFolder
from daemon.commands.times import Moment

_Command = Callable[..., int]
_FOREVER = 1 << 62
_SOURCES = click.argument("sources", nargs=-1, metavar="[SOURCE]...")
_JSON = click.option("--json", "as_json", is_flag=True, help="For programs; times are nanoseconds since 1970, UTC.")


def _stored(command: _Command) -> _Command:
    """Options that name the store; see `daemon.commands.recordings.opened`."""
    store = click.option(
        "--store",
        metavar="NAME|FOLDER",
        type=InputName(),
        help="Of record.stores, or its folder.  [default: the only one]",
    )
    return CONFIG(store(command))


def _timed(*, required: bool) -> Callable[[_Command], _Command]:
    """Options for a time: they come as `begin` and `end`."""
    words = "2026-11-26T10:30, local unless it ends with Z or +01:00, or how long ago: 90s, 30m, 2h, 3d."
    first: dict[str, Any] = {"type": Moment(), "metavar": "TIME", "required": required, "help": words}
    last = first | {"help": "Likewise."}
    if not required:
        first["default"], last["default"] = 0, _FOREVER

    def wrap(command: _Command) -> _Command:
        def checked(begin: int, end: int, **values: Any) -> int:
            if end <= begin:
                raise click.UsageError("--to is not later than --from")
            return command(begin=begin, end=end, **values)

        taking: _Command = update_wrapper(checked, command)  # first: it brings the command's other options
        return click.option("--from", "begin", **first)(click.option("--to", "end", **last)(taking))

    return wrap


@click.group()
def recordings() -> None:
    """Video that was recorded, also while a daemon records: docs/recording.md."""


@recordings.command(
    "list",
    epilog=examples(
        "lookout recordings list -c config.yaml",
        "lookout recordings list door --locks -c config.yaml",
    ),
)
@_SOURCES
@_stored
@_timed(required=False)
@click.option("--locks", "of_locks", is_flag=True, help="What is locked, by whom and why.")
@_JSON
def list_(sources: tuple[str, ...], begin: int, end: int, of_locks: bool, as_json: bool, **where: Any) -> int:
    """Show what is recorded: a line for each source, or of one SOURCE what is there and each gap."""
    from rich.console import Console

    from daemon.commands import recording_tables as tables
    from daemon.commands import recordings as stores
    from daemon.recording.locks import Locks

    with stores.opened(**where) as store:
        if of_locks:
            locks = [lock for lock in Locks(store).all() if not sources or lock.source in sources]
            if not _told(locks, as_json):
                tables.show_locks(locks, Console())
        elif len(sources) == 1:
            parts = stores.parts(store, sources[0], begin, end)
            if not _told(parts, as_json):
                tables.show_parts(parts, Console())
        else:
            rows = stores.summaries(store, sources, begin, end)
            if not _told(rows, as_json):
                tables.show_summaries(rows, Console())
    return 0


@recordings.command(epilog=examples("lookout recordings gaps door -c config.yaml --from 1d"))
@_SOURCES
@_stored
@_timed(required=False)
@click.option("--min", "least", default=0.0, type=Number(0), metavar="SECONDS", help="Longer ones alone.")
@_JSON
def gaps(sources: tuple[str, ...], begin: int, end: int, least: float, as_json: bool, **where: Any) -> int:
    """Show what is not recorded, and why."""
    from rich.console import Console

    from daemon.commands import recording_tables as tables
    from daemon.commands import recordings as stores

    with stores.opened(**where) as store:
        rows = stores.gaps(store, sources, begin, end, round(least * 1e9))
    if not _told(rows, as_json):
        tables.show_parts(rows, Console())
    return 0


@recordings.command(
    epilog=examples(
        "lookout recordings export door door.mp4 --from 2026-11-26T10:30 --to 2026-11-26T10:32",
        "lookout recordings export door case-17 --from 2h --to 1h --evidence --key key.pem",
    )
)
@click.argument("source")
@click.argument("file", type=OutputFile(), metavar="FILE|FOLDER")
@_stored
@_timed(required=True)
@click.option("--evidence", is_flag=True, help="Write the recordings as they lie in the store, with all to check them.")
@click.option("--key", type=InputPath(), metavar="FILE", help="Private key in PEM, Ed25519, that signs the evidence.")
@_JSON
def export(
    source: str, file: Path, begin: int, end: int, evidence: bool, key: Path | None, as_json: bool, **where: Any
) -> int:
    """Write a time of SOURCE to FILE, an MP4 that every player takes. Nothing is encoded again: it begins with the key
    picture before. Gaps are left out, and told. With --evidence write it to FOLDER, which is not there yet."""
    if key is not None and not evidence:
        raise click.UsageError("--key is for --evidence")
    if evidence:
        return _export_evidence(source, file, (begin, end), key, as_json, **where)
    from daemon.clock import local_text
    from daemon.commands import recordings as stores
    from daemon.commands.times import length_text
    from daemon.redact import printable

    with stores.opened(**where) as store:
        found = stores.export(store, source, begin, end, file)
    if not _told(found, as_json):
        for gap in found.gaps:
            words = f"{gap.cause}, {gap.detail}" if gap.detail else gap.cause
            click.echo(printable(f"not there: {local_text(gap.begin)} to {local_text(gap.end)}: {words}"), err=True)
        length = length_text(sum(piece.end - piece.begin for piece in found.pieces))
        click.echo(printable(f"{file}: {length} from {local_text(found.begin)}, {found.bytes / 1e6:.1f} MB"))
    return 0


def _export_evidence(
    source: str, folder: Path, times: tuple[int, int], key: Path | None, as_json: bool, config: Path, store: str | None
) -> int:
    from daemon.commands import evidence
    from daemon.commands import recordings as stores

    signing = evidence.key_of(key)
    with stores.opened(config, store) as opened, stores.reading(opened) as index:
        stores.chosen(index, [source])
        by = stores.user()
        found = evidence.export_evidence(opened, index, config, source, times, folder, key=signing, by=by)
    if not _told(found, as_json):
        evidence.tell(found, folder)
    return 0


@recordings.command(epilog=examples("lookout recordings keys key.pem"))
@click.argument("file", type=OutputFile())
def keys(file: Path) -> int:
    """Make a key that signs evidence: FILE for the one who signs, and FILE.pub for all who check."""
    from daemon.commands import evidence

    evidence.make(file)
    return 0


@recordings.command(
    epilog=examples(
        "lookout recordings search door --from 1d --to 0s --rule street",
        'lookout recordings search door --from 2h --to 0s --line "0.5,0.1 0.5,0.9"',
    )
)
@click.argument("source")
@_stored
@_timed(required=True)
@click.option(
    "--rule",
    "rules",
    multiple=True,
    metavar="FILE|NAME",
    type=InputName(),
    help="A YAML file with a rule, or the name of one of SOURCE in the configuration.",
)
@click.option("--zone", "zones", multiple=True, metavar="POINTS", help='Such as "0.1,0.2 0.9,0.2 0.9,0.8": shares.')
@click.option("--line", "lines", multiple=True, metavar="POINTS", help='Such as "0.5,0 0.5,1".')
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each answer; times are nanoseconds, UTC.")
def search(
    source: str,
    begin: int,
    end: int,
    rules: tuple[str, ...],
    zones: tuple[str, ...],
    lines: tuple[str, ...],
    as_json: bool,
    **where: Any,
) -> int:
    """Ask the past: events that rules would have given of the stored boxes of SOURCE, and what they could not see."""
    from daemon.commands import past_search
    from daemon.commands import recordings as stores

    asked = past_search.rules_of(where["config"], source, rules, zones, lines)
    with stores.opened(**where) as store, stores.reading(store) as index:
        return past_search.show(store, index, past_search.asked(source, asked, begin, end), as_json=as_json)


@recordings.command(epilog=examples('lookout recordings lock door --from 2h --to 1h --reason "case 17"'))
@click.argument("source")
@_stored
@_timed(required=True)
@click.option("--reason", default="", help="Shown with the lock.")
@_JSON
def lock(source: str, begin: int, end: int, reason: str, as_json: bool, **where: Any) -> int:
    """Keep a time of SOURCE until it is unlocked, whatever the limits of the store are."""
    from daemon.commands import recordings as stores

    with stores.opened(**where) as store:
        found = stores.lock(store, source, begin, end, reason)
    if not _told(found, as_json):
        click.echo(f"locked: {found.id}")
    return 0


@recordings.command(epilog=examples("lookout recordings unlock 01K7"))
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@_stored
def unlock(ids: tuple[str, ...], **where: Any) -> int:
    """Take locks back: what they kept goes when the limits of the store say."""
    from daemon.commands import recordings as stores

    with stores.opened(**where) as store:
        stores.unlock(store, ids)
    return 0


@recordings.command(
    epilog=examples(
        "lookout recordings verify door --from 1d",
        "lookout recordings verify case-17 --public-key key.pem.pub",
    )
)
@click.argument("source", required=False, metavar="[SOURCE|FOLDER]")
@_stored
@_timed(required=False)
@click.option("--public-key", type=InputPath(), metavar="FILE", help="Of the one who is to have signed the evidence.")
@_JSON
def verify(source: str | None, begin: int, end: int, public_key: Path | None, as_json: bool, **where: Any) -> int:
    """Read all that is recorded, or what lies in a FOLDER of evidence, and find each byte that is not as it was
    written, and each file that was removed. Exit code 1 if there is one."""
    from daemon.commands import evidence
    from daemon.commands import recordings as stores

    if source is not None and evidence.is_evidence(source, has_key=public_key is not None):
        return evidence.check(Path(source), public_key, as_json=as_json)
    if public_key is not None:
        raise click.UsageError("--public-key is for a folder of evidence")

    with stores.opened(**where) as store:
        return stores.check(store, source, begin, end, as_json=as_json)


@recordings.command(epilog=examples("lookout recordings rebuild -c config.yaml"))
@_stored
def rebuild(**where: Any) -> int:
    """Make the index anew from the files. Exit code 1 if one of them cannot be read."""
    from daemon.commands import recordings as stores

    with stores.opened(**where) as store:
        return stores.rebuild(store)


@recordings.command(epilog=examples("lookout recordings init /mnt/nas/lookout"))
@click.argument("folder", type=OutputFolder())
def init(folder: Path) -> int:
    """Make an empty FOLDER a store, such as a mounted disk or share for must_be_mount."""
    from contextlib import closing

    from daemon.recording.store import Store

    with closing(Store.init(folder)) as store:
        click.echo(f"{folder}: is a store now, {store.uuid}")
    return 0


def _told(rows: object, as_json: bool) -> bool:
    """Print something for programs; whether it was asked for."""
    import msgspec

    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(rows), indent=1))
    return as_json
