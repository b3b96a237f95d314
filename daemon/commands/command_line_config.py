"""A configuration that was typed on the command line: what cannot be is refused at once, before a download.

A daemon would try it for ever, as it does with what a file names: that may come later.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from daemon.commands.from_arguments import DEFAULT_CONFIDENCE, config_of, sources_of, yaml_of
from daemon.commands.model import ChosenModel, choose
from daemon.config.root import Config
from daemon.config.sources import AvConfig, CameraConfig, SourceConfig
from daemon.errors import LookoutError, SourceError
from daemon.redact import Url
from daemon.sources.connection import connect
from daemon.sources.playlist import Playlist, is_playlist

_TRIED = 20  # recordings of a folder: one that can be opened is enough
_VIDEO_DEVICES = 81  # major number of V4L2


@dataclass(frozen=True)
class TypedConfig:
    """Sources and options of a command.

    Attributes:
        model: a file, or a name in the catalogue.
        labels: of a model without; None for its own.
        endpoint: None for the default.
        confidence: boxes below it are left out.
        tracked: objects get ids.
    """

    sources: Sequence[str]
    named_model: str
    labels: str | None = None
    endpoint: str | None = None
    confidence: float = DEFAULT_CONFIDENCE
    tracked: bool = False

    @cached_property
    def model(self) -> ChosenModel:
        return choose(self.named_model)

    def read(self) -> tuple[str, Config]:
        """The configuration as a file, and as it is run.

        Raises:
            LookoutError: a source is none, the model is not there, or an option is invalid.
        """
        described = sources_of(self.sources)
        labels = self.labels or self.model.labels
        text = yaml_of(
            described, self.model.path, labels, self.endpoint, confidence=self.confidence, tracked=self.tracked
        )
        return text, config_of(text)


def check_typed(sources: Sequence[SourceConfig]) -> None:
    """Check recordings and cameras of this machine.

    Raises:
        LookoutError: one of them is not there, or is no video.
    """
    for source in sources:
        if isinstance(source, CameraConfig):
            _check_camera(source.device)
        elif isinstance(source, AvConfig) and source.url.scheme in ("", "file"):
            _check_recordings(source)


def _check_camera(device: int | str) -> None:
    path = Path(f"/dev/video{device}" if isinstance(device, int) else device)
    with suppress(FileNotFoundError):
        found = path.stat()
        if stat.S_ISCHR(found.st_mode) and os.major(found.st_rdev) == _VIDEO_DEVICES:
            return
        raise LookoutError(f"{path} is no camera: `lookout cameras --usb` shows those of this machine")
    raise LookoutError(f"there is no camera {path}: `lookout cameras --usb` shows those of this machine")


def _check_recordings(source: AvConfig) -> None:
    path = source.url.path
    if not is_playlist(path):
        _check_recording(source)
        return
    found = Playlist(path, loop=False).found()[:_TRIED]
    if not found:
        raise LookoutError(f"{path} holds no recording: name files, a folder or a pattern that holds some")
    for number, each in enumerate(found, 1):
        try:
            _check_recording(msgspec.structs.replace(source, url=Url(str(each))))
        except LookoutError:
            if number == len(found):
                raise
        else:
            return


def _check_recording(source: AvConfig) -> None:
    try:
        mode = Path(source.url.path).stat().st_mode
    except OSError as error:
        raise LookoutError(f"cannot open {source.url}: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise LookoutError(f"{source.url} is not a file")
    try:
        connect(source).container.close()
    except SourceError as error:
        raise LookoutError(str(error)) from error
