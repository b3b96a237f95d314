"""A file system of its own, in a file, which can hang and be full."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from tests.support.booted import can_mount


@cache
def can_loop() -> bool:
    """Whether a file can be mounted here."""
    with suppress(OSError):
        return can_mount() and _run("losetup", "--find", check=False) == 0
    return False


class SmallDisk:
    """One that is mounted.

    Args:
        folder: where.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._is_frozen = False

    def freeze(self) -> None:
        """Whoever writes waits, and cannot be killed."""
        _run("fsfreeze", "--freeze", self.folder)
        self._is_frozen = True

    def thaw(self) -> None:
        if self._is_frozen:
            self._is_frozen = False
            _run("fsfreeze", "--unfreeze", self.folder)


@contextmanager
def small_disk(folder: Path, mib: int) -> Iterator[SmallDisk]:
    """ext4 of some size, as small ones are."""
    image, place = folder / "disk.img", folder / "disk"
    with image.open("wb") as file:
        file.truncate(mib << 20)
    place.mkdir()
    _run("mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image)
    _run("mount", "-o", "loop", image, place)
    disk = SmallDisk(place)
    try:
        yield disk
    finally:
        disk.thaw()
        _run("umount", "--lazy", place)


def _run(*words: str | Path, check: bool = True) -> int:
    return subprocess.run(words, check=check, capture_output=True, timeout=60).returncode
