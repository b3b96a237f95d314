"""Several recordings as one source: those of a folder, or that a pattern names, by name, one after the other."""

from __future__ import annotations

from collections import deque
from glob import glob, has_magic
from pathlib import Path

from daemon.errors import SourceError

# Of a folder, these are recordings; a pattern says itself what it means.
_NAMED = """
    .264 .265 .3gp .asf .avi .dav .flv .gif .h264 .h265 .hevc .m2ts .m4v .mjpeg .mkv .mov .mp4 .mpeg .mpg .mts .mxf
    .ogv .ts .webm .wmv"""
_SUFFIXES = frozenset(_NAMED.split())


class Playlist:
    """The files are listed when it begins, and each time it begins again.

    Args:
        loop: begin again at the end, with what has come meanwhile.
    """

    def __init__(self, path: str, *, loop: bool) -> None:
        self._path, self._loop = path, loop
        self._left: deque[Path] = deque()
        self._begun = False

    @property
    def goes_on(self) -> bool:
        """After the recording that was given last there is another."""
        return self._begun and (self._loop or bool(self._left))

    def next(self) -> Path:
        """The next recording.

        Raises:
            SourceError: there is none.
        """
        if not self._left:
            self._left.extend(self._found())
        if not self._left:
            raise SourceError(f"{self._path} holds no recording")
        self._begun = True
        return self._left.popleft()

    def _found(self) -> list[Path]:
        folder = Path(self._path)
        if folder.is_dir():
            found = [path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES]
        else:
            found = [Path(path) for path in glob(self._path)]
        return sorted(path for path in found if path.is_file())


def is_several(path: str) -> bool:
    """A folder, or a pattern and no file of that name."""
    return Path(path).is_dir() or (has_magic(path) and not Path(path).exists())
