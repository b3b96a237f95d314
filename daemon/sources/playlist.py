"""Several recordings as one source: the files of a folder or of a pattern, in order of their names."""

from __future__ import annotations

from collections import deque
from glob import glob, has_magic
from pathlib import Path

from daemon.errors import SourceError

# The extensions of recordings in a folder; a pattern matches any file.
_EXTENSIONS = """
    .264 .265 .3gp .asf .avi .dav .flv .gif .h264 .h265 .hevc .m2ts .m4v .mjpeg .mkv .mov .mp4 .mpeg .mpg .mts .mxf
    .ogv .ts .webm .wmv"""
RECORDINGS = frozenset(_EXTENSIONS.split())


class Playlist:
    """Lists the files at the start of each pass.

    Args:
        loop: begin again at the end, with the files that exist then.
    """

    def __init__(self, path: str, *, loop: bool) -> None:
        self._path, self._loop = path, loop
        self._remaining: deque[Path] = deque()
        self._begun = False

    @property
    def has_next(self) -> bool:
        """Whether another recording follows the one that `next` returned last."""
        return self._begun and (self._loop or bool(self._remaining))

    def next(self) -> Path:
        """The next recording.

        Raises:
            SourceError: there is no recording.
        """
        if not self._remaining:
            self._remaining.extend(self.found())
        if not self._remaining:
            raise SourceError(f"{self._path} holds no recording")
        self._begun = True
        return self._remaining.popleft()

    def found(self) -> list[Path]:
        """The recordings that are there now, in order.

        Raises:
            SourceError: the folder cannot be listed.
        """
        try:
            return self._found()
        except OSError as error:
            raise SourceError(f"{self._path} cannot be listed: {error.strerror}") from error

    def _found(self) -> list[Path]:
        folder = Path(self._path)
        if folder.is_dir():
            found = [path for path in folder.iterdir() if path.suffix.lower() in RECORDINGS]
        else:
            found = [Path(path) for path in glob(self._path)]
        return sorted(path for path in found if path.is_file())


def is_playlist(path: str) -> bool:
    """Whether a path is a folder, or a pattern and not the name of a file."""
    return Path(path).is_dir() or (has_magic(path) and not Path(path).exists())
