"""`python3 backup.py FOLDER`: what Lookout cannot make again, copied while it runs; docs/backup.md says how to restore.

Needs Python alone. Databases are copied by SQLite's own means: a copy of the file of one that is being written is torn,
and lacks what is in its -wal. Other files of Lookout are replaced whole, or grow at their end, and are simply copied.
The folder is there whole, or not at all.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

_WHERE = ("/etc/lookout", "/var/lib/lookout", "/var/lib/lookout-*")
_DATABASE = b"SQLite format 3\0"
_BESIDE_DATABASES = ("-wal", "-shm", "-journal", ".sqlite.lock")
_MARKER = "lookout-store.json"  # of a store of recordings
_WAIT_S = 30.0


def _files(folder: Path, with_recordings: bool) -> Iterator[Path]:
    """Those of a folder, and links; folders that are empty as well."""
    for where, folders, names in os.walk(folder):
        if _MARKER in names and not with_recordings:
            folders.clear()
            continue
        for name in (*names, *(name for name in folders if (Path(where) / name).is_symlink())):
            yield Path(where) / name
        if not names and not folders:
            yield Path(where)


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_DATABASE)) == _DATABASE


def _copy_database(path: Path, to: Path) -> None:
    source = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_WAIT_S)
    with closing(source), closing(sqlite3.connect(to)) as copy:
        source.backup(copy)
        (answer,) = copy.execute("PRAGMA integrity_check").fetchone()
    if answer != "ok":
        raise sqlite3.DatabaseError(f"its copy is damaged: {answer}")
    shutil.copymode(path, to)
    shutil.chown(to, path.stat().st_uid, path.stat().st_gid)


def _copy(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        to.symlink_to(path.readlink())
    elif path.is_dir():
        to.mkdir(exist_ok=True)
    elif path.is_file() and _is_database(path):
        _copy_database(path, to)
    elif path.is_file():
        shutil.copy2(path, to)
        shutil.chown(to, path.stat().st_uid, path.stat().st_gid)


def _keep_folders(top: Path, to: Path) -> None:
    """Owners and modes of folders: some hold keys."""
    for copy in [to, *(path for path in to.rglob("*") if path.is_dir() and not path.is_symlink())]:
        original = top / copy.relative_to(to)
        with suppress(FileNotFoundError):  # deleted meanwhile: what was copied of it stays
            shutil.copystat(original, copy)
            shutil.chown(copy, original.stat().st_uid, original.stat().st_gid)


def _back_up(tops: list[Path], out: Path, with_recordings: bool) -> int:
    """Returns the number of files."""
    count = 0
    for top in tops:
        place = out / top.relative_to("/")
        for path in _files(top, with_recordings):
            if path.name.endswith(_BESIDE_DATABASES) or not (path.is_symlink() or path.is_file() or path.is_dir()):
                continue
            try:
                _copy(path, place / path.relative_to(top))
                count += 1
            except FileNotFoundError:
                pass  # deleted meanwhile, as recordings are
            except sqlite3.Error as error:
                if not path.exists():
                    (place / path.relative_to(top)).unlink(missing_ok=True)
                    continue
                raise OSError(f"{path}: {error}") from error
        if place.exists():
            _keep_folders(top, place)
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a new one, on another disk")
    parser.add_argument(
        "--from", dest="tops", action="append", default=[], help=f"folder; left out: {', '.join(_WHERE)}"
    )
    parser.add_argument("--recordings", action="store_true", help="stores of recordings as well, which may be large")
    args = parser.parse_args()
    if args.tops:
        tops = [Path(top).absolute() for top in args.tops]
    else:
        tops = [path for pattern in _WHERE for path in sorted(Path("/").glob(pattern[1:])) if path.is_dir()]
    missing = [str(top) for top in tops if not top.is_dir()]
    begun = args.folder.with_name(f"{args.folder.name}.part")
    if missing or not tops:
        sys.stderr.write(f"backup: not there: {', '.join(missing or _WHERE)}: name folders by --from\n")
        return 2
    try:
        if args.folder.exists():
            raise FileExistsError(f"{args.folder}: is there already: name a new folder")
        shutil.rmtree(begun, ignore_errors=True)
        begun.mkdir(mode=0o700, parents=True)
        count = _back_up(tops, begun, args.recordings)
        os.sync()
        begun.rename(args.folder)
    except (OSError, shutil.Error) as error:
        shutil.rmtree(begun, ignore_errors=True)
        sys.stderr.write(f"backup: {error}\n")
        return 2
    sys.stdout.write(f"{args.folder}: {count} files\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
