"""Files that a configuration names, and the folder of state. Anything but a file is refused before it is read, because
reading may never end."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

_MAX_BYTES = 64 << 20
GIVEN = ("/dev/fd/", "/proc/self/fd/", "/dev/stdin")  # what the shell has opened: `-c <(sops -d config.yaml)`


def state_folder() -> Path | None:
    """Where a service keeps its state, which systemd says; None if it says nothing."""
    folder = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    return Path(folder) if folder else None


def is_device(path: str) -> bool:
    """Whether a path is that of a device, there or not; /dev/shm has files."""
    return path.startswith("/dev/") and not path.startswith("/dev/shm/")  # noqa: S108 - nothing is written


def check_is_file(path: Path) -> None:
    """Raises:
    OSError: there is no file, or something else: a folder, a pipe, a device.
    """
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not (stat.S_ISREG(found.st_mode) or str(path).startswith(GIVEN)):
        raise OSError(errno.EINVAL, "it is a pipe or a device, and not a file", str(path))
    if found.st_size > _MAX_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {_MAX_BYTES >> 20} MiB", str(path))


def try_to_write(folder: Path) -> None:
    """Make a file in a folder that is gone again: what permissions allow, a file system may still refuse.

    Raises:
        OSError: none can be made there.
    """
    with tempfile.TemporaryFile(dir=folder):
        pass


def check_can_read(*paths: Path | None) -> None:
    """For libraries that do not say which of several files they cannot read.

    Raises:
        OSError: of the first one, with its name.
    """
    for path in filter(None, paths):
        check_is_file(path)
        with path.open("rb"):
            """It is only opened."""


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        OSError: as `check_is_file`, or it cannot be read, or is no text in UTF-8; `strerror` says what is wrong.
    """
    check_is_file(path)
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise OSError(errno.EILSEQ, f"it is no text in UTF-8, at byte {error.start}", str(path)) from error
