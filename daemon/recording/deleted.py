"""The ids of a source's files that were deleted, as the limits of the store say: others that are not there were
removed by somebody. A file of eight bytes each, beside the days."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Final

from daemon.recording.store import Store, folder_name, open_file, write_whole

_NAME: Final = "deleted.ids"
_ID_BYTES: Final = 8
_MANY: Final = 1 << 20  # bytes, of three months of files of a minute


def note(store: Store, source: str, id: str) -> bool:
    """A file is about to be deleted.

    Returns:
        Whether there are so many that `forget` should be called.

    Raises:
        OSError: it cannot be written.
    """
    with store.folder(folder_name(source)) as folder:
        file = open_file(_NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT, folder)
    try:
        os.write(file, bytes.fromhex(id))
        return os.fstat(file).st_size > _MANY
    finally:
        os.close(file)


def noted(store: Store, source: str) -> set[str]:
    """Raises:
    OSError: it cannot be read.
    """
    try:
        with store.opened(f"{folder_name(source)}/{_NAME}") as file:
            data = os.pread(file, os.fstat(file).st_size, 0)
    except FileNotFoundError:
        return set()
    return {data[at : at + _ID_BYTES].hex() for at in range(0, len(data) - _ID_BYTES + 1, _ID_BYTES)}


def forget(store: Store, source: str, wanted: Collection[str]) -> None:
    """Keep only ids that a file still names.

    Raises:
        OSError: it cannot be written.
    """
    kept = sorted(noted(store, source) & set(wanted))
    with store.folder(folder_name(source)) as folder:
        write_whole(folder, _NAME, b"".join(map(bytes.fromhex, kept)))
