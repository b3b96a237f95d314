"""Attaches what a person at this machine sees: `lookout run SOURCE ... --show --save-video FILE`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.errors import LookoutError
from daemon.lifecycle import Phase

if TYPE_CHECKING:
    from daemon.pipeline.core import Core
    from daemon.pipeline.lane import Observer
    from daemon.viewing.window import WindowProcess


class Viewing:
    """Windows and files that are opened before anything else, so that what cannot be is said at once.

    Args:
        sources: ids.
        video: of one source the file, of several such as seen-ID.mp4; None for none.
        show: open windows.

    Raises:
        LookoutError: a file or a window cannot be opened; nothing is left.
    """

    def __init__(self, sources: Sequence[str], video: Path | None, *, show: bool) -> None:
        self._paths = video_paths(sources, video) if video is not None else {}
        self._window: WindowProcess | None = None
        if show:
            from daemon.viewing.window import WindowProcess, check_can_show

            check_can_show(len(sources))
        with ExitStack() as undo:
            if self._paths:
                from daemon.viewing.video_file import reserve

                for path in self._paths.values():
                    reserve(path)
                    undo.callback(path.unlink, missing_ok=True)
            if show:
                self._window = WindowProcess()
            undo.pop_all()

    def open(self, on_closed: Callable[[], None], core: Core) -> list[Observer]:
        """Add the parts to a daemon.

        Args:
            on_closed: called when a person closes a window.
        """
        from daemon.viewing.saved_videos import SavedVideos
        from daemon.viewing.window import ShownPictures

        parts: list[Observer] = []
        if self._window is not None:
            window, self._window = self._window, None
            parts.append(core.life.add(ShownPictures(window, on_closed, core.runtime), Phase.REPORTS))
        if self._paths:
            paths, self._paths = self._paths, {}
            parts.append(core.life.add(SavedVideos(paths, core.runtime), Phase.STORES))
        return parts

    def close(self) -> None:
        """Close what no daemon has taken."""
        if self._window is not None:
            self._window.close()
        for path in self._paths.values():
            path.unlink(missing_ok=True)
        self._window, self._paths = None, {}


def video_paths(sources: Sequence[str], video: Path) -> dict[str, Path]:
    """The file of each source.

    Raises:
        LookoutError: it is no MP4.
    """
    if video.suffix.lower() != ".mp4":
        raise LookoutError(f"--save-video writes MP4: {video} needs a name that ends with .mp4")
    if len(sources) == 1:
        return {sources[0]: video}
    return {source: video.with_name(f"{video.stem}-{source}{video.suffix}") for source in sources}
