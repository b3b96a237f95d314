"""`lookout recordings`: what operators do with stores, also while a daemon records into them."""

from __future__ import annotations

import getpass
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import click
import msgspec

from daemon.clock import Clock, SystemClock, local_text
from daemon.config.load import load_raw
from daemon.config.recording import RecordConfig, check_record
from daemon.config.section import Section, absolute
from daemon.config.text import check_variables, hook
from daemon.errors import ConfigError, LookoutError
from daemon.progress import Tell, progress
from daemon.recording import export as exporting
from daemon.recording.index import NAME, Index, IndexReader
from daemon.recording.locks import Locks
from daemon.recording.reconcile import rebuild as rebuild_index
from daemon.recording.records import Gap, Lock
from daemon.recording.store import Store
from daemon.recording.timeline import Span
from daemon.recording.verify import Problem, verify
from daemon.redact import printable
from daemon.system.signals import stopping_on_signals
from daemon.system.stop_token import StopToken
from daemon.validation import convert

FOUND = 1  # exit code
_FOREVER = 1 << 62


class _RecordFile(Section, frozen=True):
    record: RecordConfig = RecordConfig()


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Video of a source in a store.

    Attributes:
        begin, end: UTC ns, of the time that was asked, as far as there is something.
        recorded: ns.
        bytes: of the files, and of the tracks beside them.
    """

    source: str
    begin: int
    end: int
    recorded: int
    files: int
    bytes: int
    locks: int


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Video without a gap, or a gap.

    Attributes:
        begin, end: UTC ns.
        cause, detail: of a gap.
        files, bytes: of video, and of the tracks beside it.
    """

    source: str
    begin: int
    end: int
    cause: str | None = None
    detail: str | None = None
    files: int = 0
    bytes: int = 0


def store_path(config: Path, store: str | None) -> Path:
    """The folder of a store.

    Args:
        store: its name in the configuration, or its folder; None for the only one.

    Raises:
        ConfigError: none is meant, or several may be.
    """
    if store is not None and ("/" in store or Path(store).is_dir()):
        return Path(store)
    raw = {key: value for key, value in load_raw(config).items() if key == "record"}
    try:
        check_variables(raw, _RecordFile)
        found: RecordConfig = convert(raw, _RecordFile, hook).record
        check_record(found)
    except ConfigError as error:
        raise ConfigError(f"{config}: {error}") from error
    names = ", ".join(found.stores)
    if not found.stores:
        raise ConfigError(f"{config}: record.stores has no store: name its folder with --store")
    if store is None and len(found.stores) > 1:
        raise ConfigError(f"{config}: has several stores: name one with --store: {names}")
    chosen = found.stores.get(store or next(iter(found.stores)))
    if chosen is None:
        raise ConfigError(f"{config}: has no store {store!r}, only {names}; a folder has a / in its name")
    return absolute(config.resolve().parent, chosen.path)


@contextmanager
def opened(config: Path, store: str | None) -> Iterator[Store]:
    """The store that is meant; nothing is made.

    Raises:
        LookoutError: it is not there.
    """
    path = store_path(config, store)
    if not path.is_dir():
        raise LookoutError(f"{path}: is no folder: nothing was recorded there yet, or it is not mounted")
    with closing(Store.open(path, makes=False)) as found:
        yield found


@contextmanager
def reading(store: Store) -> Iterator[IndexReader]:
    with closing(IndexReader(store)) as index:
        yield index


def summaries(store: Store, sources: Sequence[str], begin: int, end: int) -> list[Summary]:
    """One for each source with something in a time, UTC ns."""
    locks, found = Locks(store).all(), []
    with reading(store) as index:
        for source in chosen(index, sources):
            files = index.files(source, begin, end)
            if not files:
                continue
            first, last = max(begin, min(row.begin for row in files)), min(end, max(row.end for row in files))
            spans = [row for row in index.timeline(source, first, last) if isinstance(row, Span)]
            found.append(
                Summary(
                    source=source,
                    begin=first,
                    end=last,
                    recorded=sum(row.end - row.begin for row in spans),
                    files=len(files),
                    bytes=sum(index.file_sizes(source, begin, end).values()),
                    locks=sum(lock.source == source for lock in locks),
                )
            )
    return found


def parts(store: Store, source: str, begin: int, end: int) -> list[Part]:
    """The timeline of a source, with files that follow at once as one.

    Raises:
        LookoutError: the store has nothing of the source.
    """
    found: list[Part] = []
    with reading(store) as index:
        chosen(index, [source])
        bounds = index.files(source)
        first = max(begin, min((row.since for row in bounds), default=begin))
        sizes = index.file_sizes(source, first, end)
        for row in index.timeline(source, first, end):
            if isinstance(row, Gap):
                part = Part(source=source, begin=row.begin, end=row.end, cause=row.cause, detail=row.detail)
            else:
                part = Part(source=source, begin=row.begin, end=row.end, files=1, bytes=sizes.get(row.file.id, 0))
            found.append(part)
            if len(found) > 1 and found[-2].cause is None and part.cause is None:
                both = found[-2:]
                del found[-2:]
                found.append(_joined(*both))
    return found


def gaps(store: Store, sources: Sequence[str], begin: int, end: int, least: int) -> list[Part]:
    """Gaps of at least so many ns, by source and time."""
    with reading(store) as index:
        known = chosen(index, sources)
    rows = (part for source in known for part in parts(store, source, begin, end))
    return [part for part in rows if part.cause is not None and part.end - part.begin >= least]


def export(store: Store, source: str, begin: int, end: int, out: Path) -> exporting.Exported:
    """See `daemon.recording.export.export`."""
    with reading(store) as index:
        chosen(index, [source])
        with progress("export", "s") as shown, _interrupted_when_told(shown.tell) as tell:
            return exporting.export(store, index, source, begin, end, out, tell)


@contextmanager
def _interrupted_when_told(tell: Tell) -> Iterator[Tell]:
    """Ctrl-C and SIGTERM end the work when it next tells how far it is: a KeyboardInterrupt within FFmpeg's calls of
    Python is lost there, and FFmpeg goes on with wrong bytes.

    Yields:
        Instead of `tell`.
    """
    stop = StopToken()

    def told(done: float, total: float) -> None:
        if stop.is_set:
            raise KeyboardInterrupt
        tell(done, total)

    with stopping_on_signals(stop.set):
        yield told


def lock(store: Store, source: str, begin: int, end: int, reason: str, clock: Clock | None = None) -> Lock:
    """Keep a time of a source.

    Raises:
        LookoutError: nothing is recorded of it.
    """
    with reading(store) as index:
        chosen(index, [source])
        at, locks = (clock or SystemClock()).utc_ns(), Locks(store)
        made = locks.add(source, begin, end, reason=reason, by=user(), at=at)
        # Looked for when it is locked: until then it may be deleted.
        if not any((store.path / facts.path).exists() for facts in index.files(source, begin, end)):
            locks.remove(made.id)
            raise LookoutError(f"{printable(source)}: nothing is recorded of that time: see `lookout recordings gaps`")
    return made


def unlock(store: Store, ids: Sequence[str]) -> None:
    locks = Locks(store)
    for id in ids:
        gone = locks.remove(id)
        click.echo(f"unlocked: {printable(gone.source)} from {local_text(gone.begin)} to {local_text(gone.end)}")


def check(store: Store, source: str | None, begin: int, end: int, *, as_json: bool) -> int:
    """Compare each byte with what was written.

    Returns:
        The exit code.
    """
    has_index = (store.path / NAME).exists()
    with closing(IndexReader(store)) if has_index else _nothing() as index:
        if source is not None and index is not None:
            chosen(index, [source])
        with progress("verify", "files") as shown:
            found = verify(store, index, source=source, begin=begin, end=end, tell=shown.tell)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=1))
    else:
        for problem in found.problems:
            click.echo(_line(problem))
        if not has_index:
            click.echo("there is no index: that the newest file of a source was removed cannot be seen", err=True)
        click.echo(
            f"{found.files} files, {found.fragments} fragments, {found.bytes / 1e9:.3f} GB:"
            f" {len(found.problems) or 'no'} problem{'' if len(found.problems) == 1 else 's'}"
        )
    return FOUND if found.problems else 0


def rebuild(store: Store) -> int:
    """Make the index anew.

    Returns:
        The exit code.
    """
    with closing(Index(store)) as index, progress("rebuild", "files") as shown:
        done = rebuild_index(store, index, shown.tell)
    for path, reason in sorted(done.problems.items()):
        click.echo(printable(f"{path}: {reason}"), err=True)
    click.echo(f"{done.added} files are in the index; {done.recovered} were not finished, and are now")
    return FOUND if done.problems else 0


@contextmanager
def _nothing() -> Iterator[None]:
    yield None


def chosen(index: IndexReader, sources: Sequence[str]) -> Sequence[str]:
    """Raises:
    LookoutError: one is unknown.
    """
    known = index.sources()
    for source in sources:
        if source not in known:
            others = f"there are {', '.join(known[:20])}" if known else "there are none"
            raise LookoutError(f"the store has no source {printable(source)}: {printable(others)}")
    return sources or known


def _joined(first: Part, second: Part) -> Part:
    return msgspec.structs.replace(
        first, end=second.end, files=first.files + second.files, bytes=first.bytes + second.bytes
    )


def _line(problem: Problem) -> str:
    when = ""
    if problem.begin is not None and problem.end is not None:
        when = f" from {local_text(problem.begin)} to {local_text(problem.end)}"
    source = f" {problem.source}" if problem.source else ""
    return printable(f"{problem.kind}:{source}{when}: {problem.path}: {problem.detail}")


def user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without the user's name
        return "unknown"
