"""The lines of a result file that are no messages of the wire: the first one and the last one."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from lookout.messages import Dropped, Model, Total, VideoFormat


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line.

    Attributes:
        clip: name of the recording's file.
        size: of the file, bytes.
        sha256: of the file.
        model: as in `detections`; of several models the first by name.
        models: by name; empty where the configuration has `model`.
        settings: what the result depends on besides; keys with defaults are left out.
        release: version of Lookout.
    """

    schema: Literal["lookout.batch-header/1"] = "lookout.batch-header/1"
    clip: str
    size: int
    sha256: str
    model: Model
    settings: dict[str, Any]
    release: str
    models: dict[str, Model] = {}


class ModelFooter(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one of several models, as in `Footer`."""

    analysed: int
    boxes: int
    bad_boxes: int


class Footer(msgspec.Struct, frozen=True, kw_only=True):
    """The last line: a file without it is not whole.

    Attributes:
        complete: the recording was played to its end, and every picture of it was decoded without errors.
        ended: how it ended: "played to its end", or where it is cut short.
        format: the video.
        frames: pictures of the recording, those that could not be decoded included.
        analysed: pictures with a line of their own, of several models with one of each.
        dropped: the others, by cause; gaps in `seq` say which ones.
        corrupt: pictures with errors that have a line of their own, as `corrupt: mark` asks for.
        passed_over: packets that are no pictures of the video, by kind, as in `metrics`.
        boxes: in all lines.
        bad_boxes: boxes with impossible values, which no line has.
        events: their number.
        totals: of events.
        models: that have looked, by name; boxes above are their sum. Empty where the configuration has `model`.
    """

    schema: Literal["lookout.batch-footer/1"] = "lookout.batch-footer/1"
    complete: bool
    ended: str
    format: VideoFormat
    frames: int
    analysed: int
    dropped: Dropped
    boxes: int
    bad_boxes: int
    events: int
    totals: list[Total]
    corrupt: int = 0
    passed_over: dict[str, int] = {}
    models: dict[str, ModelFooter] = {}
