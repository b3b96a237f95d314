"""Boxes as JSON, written from the columns of some frames at once, where numba is installed.

This costs a third of making a `Detection` of each box and encoding it. The text is the same, to the last byte.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import structlog

from detectors.detections import Detections, joined, no_tracks, nothing
from detectors.port import cache_folder

log = structlog.get_logger(__name__)
Array = npt.NDArray[Any]
_NUMBERS_BYTES = 300  # of a box, at most, with the names between them


class BoxText:
    """Writes the boxes of frames as JSON.

    Args:
        write: see `compiled_text.write`.
    """

    def __init__(self, write: Callable[..., bool]) -> None:
        self._write = write

    def of(self, found: Sequence[Detections], labels: tuple[str, ...]) -> list[msgspec.Raw] | None:
        """The boxes of each frame, in messages for a list of `Detection`.

        None if boxes have more than tracks, or a number is so large that the loops do not write it.
        """
        if not all([one.keypoints is None and one.obb is None and one.masks is None for one in found]):  # noqa: C419 - a list costs less
            return None
        if any([one.attributes is not None for one in found]):  # noqa: C419 - likewise
            return None
        counts = [len(one.confidence) for one in found]
        *labelled, max_bytes = _labelled(labels)
        text = np.empty(sum(counts) * (_NUMBERS_BYTES + max_bytes) + 2 * len(found), np.uint8)
        ends = np.empty(len(found), np.int64)
        if not self._write(np.cumsum(counts), *labelled, *_columns(found), text, ends):
            return None
        places = ends.tolist()
        written = text[: places[-1]].tobytes()
        return [msgspec.Raw(written[begin:end]) for begin, end in zip([0, *places], places)]


def fastest_box_text(cache: Path | None) -> BoxText | None:
    """With compiled loops, ready to run; None where numba is absent or does not work.

    Args:
        cache: where the compiled code is kept, beside engines; None for the usual folder.
    """
    os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_folder(cache) / "numba"))
    try:
        from daemon.publish.compiled_text import write

        text = BoxText(write)
        text.of([nothing()], ("none",))
    except ImportError:
        return None  # the tracker has said so
    except Exception as error:  # noqa: BLE001 - numba and LLVM raise many kinds
        reason = str(error).strip().partition("\n")[0]
        log.warning("numba cannot compile the text of boxes, so Python makes it", reason=reason)
        return None
    return text


def _columns(found: Sequence[Detections]) -> tuple[Array, ...]:
    class_id = joined([one.class_id for one in found])
    boxes = joined([one.confidence for one in found]), joined([one.xyxy for one in found])
    return class_id, *boxes, *_track_columns(found, class_id)


def _track_columns(found: Sequence[Detections], class_id: Array) -> tuple[Array, ...]:
    """Ids, classes, velocities and ages of tracks; zeros for boxes without."""
    count = len(class_id)
    if all([one.tracks is None for one in found]):  # noqa: C419 - a list costs less
        zeros = np.zeros(count, np.int64)
        return zeros, class_id, np.zeros((count, 2), np.float32), zeros
    tracks = [no_tracks(one) if one.tracks is None else one.tracks for one in found]
    return (
        joined([one.id for one in tracks]),
        joined([one.class_id for one in tracks]),
        joined([one.velocity for one in tracks]),
        joined([one.age for one in tracks]),
    )


@lru_cache(maxsize=16)
def _labelled(labels: tuple[str, ...]) -> tuple[Array, Array, Array, Array, int]:
    """The arguments of `write` for each label, and the most bytes of both."""
    texts = [msgspec.json.encode(label) for label in labels]
    heads = [b'{"label":%b,"class_id":%d,"confidence":' % (text, place) for place, text in enumerate(texts)]
    tails = [b',"track_label":%b}' % text for text in texts]
    max_bytes = max(map(len, heads), default=0) + max(map(len, tails), default=0)
    return *_side_by_side(heads), *_side_by_side(tails), max_bytes


def _side_by_side(texts: Sequence[bytes]) -> tuple[Array, Array]:
    """The texts in one array, and where each begins; the last number is the end."""
    starts = np.cumsum([0, *(len(text) for text in texts)], dtype=np.int64)
    return np.frombuffer(b"".join([*texts, b" "]), np.uint8), starts
