"""`python -m tests.bench search`: rules that are asked of the past, over boxes beside recordings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import msgspec
import numpy as np

from daemon.analytics.grouping import Grouping
from daemon.analytics.loops import PYTHON
from daemon.analytics.source_tracks import SourceTracks
from daemon.analytics.tracker import TrackSettings, track
from daemon.pipeline.frames import FrameInfo
from daemon.pipeline.outbox import Served
from daemon.recording.index import Index
from daemon.recording.records import FileFacts
from daemon.recording.search.answers import End
from daemon.recording.search.asked import Asked, rule_from
from daemon.recording.search.search import search
from daemon.recording.store import Store
from daemon.recording.tracks.records import Handed, PackedNews, TrackingSettings, TracksHead
from daemon.recording.tracks.stored_frames import frames_of
from daemon.recording.tracks.track_file import TrackFile
from detectors.detections import Detections, joined_bytes
from lookout.messages import FrameClock, Model
from tests.bench.moving import HEIGHT, WIDTH, MovingObjects

_SETTINGS = TrackSettings(0.1, 0.25, 0.25, 1_000_000_000, 3_000_000_000, 3)
_SERVED = Served(Model("none", "0" * 12, "none", "none"), ("object",))
_CLOCK = FrameClock("arrival")
_SECOND, _MINUTE_S, _DAY_S = 1_000_000_000, 60, 86_400
BEGIN = 1_700_000_000 * _SECOND
_BLOCK = 64  # frames
RULES: Sequence[Mapping[str, Any]] = (
    {"type": "zone", "name": "zone", "points": [[0.3, 0.3], [0.7, 0.3], [0.7, 0.7], [0.3, 0.7]], "dwell_s": [5]},
    {"type": "line", "name": "line", "points": [[0.5, 0.0], [0.5, 1.0]]},
)


@dataclass(frozen=True)
class SearchOptions:
    """Options of the measurement; see `python -m tests.bench search --help`."""

    objects: int = 1
    minutes: int = 20
    fps: float = 30.0
    seed: int = 0


@dataclass(frozen=True)
class SearchCost:
    """
    Attributes:
        frame_us: CPU of a frame.
        day_s: CPU of a camera's day at this rate.
        speed: time that is searched in one second of CPU, s.
    """

    rule: str
    frames: int
    events: int
    frame_us: float
    day_s: float
    speed: float


def searches(options: SearchOptions) -> list[SearchCost]:
    """Run and measure, for a rule after the other."""
    with (
        TemporaryDirectory() as folder,
        closing(Store.open(Path(folder) / "store")) as store,
        closing(Index(store)) as index,
    ):
        fill(store, index, options)
        return [_cost(store, index, rule, options) for rule in RULES]


def _cost(store: Store, index: Index, rule: Mapping[str, Any], options: SearchOptions) -> SearchCost:
    seconds = options.minutes * _MINUTE_S
    asked = Asked("door", [rule_from(rule)], BEGIN, BEGIN + seconds * _SECOND)
    begun = process_time()
    *_, end = search(store, index, asked, asked.end)
    used = process_time() - begun
    assert isinstance(end, End)
    frames = round(seconds * options.fps)
    return SearchCost(
        str(rule["name"]), frames, end.events, used / frames * 1e6, used / seconds * _DAY_S, seconds / used
    )


def fill(store: Store, index: Index, options: SearchOptions) -> None:
    """Put boxes of `door` into a store, from `BEGIN` on."""
    for facts in _files(store, options):
        index.add_file(facts)


def _files(store: Store, options: SearchOptions) -> Iterator[FileFacts]:
    """A file a minute."""
    scene = MovingObjects(np.random.default_rng(options.seed), options.objects)
    state, grouping = SourceTracks(), Grouping(_SERVED.labels, ())
    count = round(_MINUTE_S * options.fps)
    for minute in range(options.minutes):
        facts = _facts(minute)
        path = store.path / facts.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        head = TracksHead(
            video=facts.id, source="door", instance="run", same_stream=True,
            tracking=TrackingSettings(_SETTINGS.timeout_ns, _SETTINGS.confirm_hits),
        )  # fmt: skip
        file = TrackFile.open(store, facts.path, head)
        assert file is not None
        with closing(file):
            for begin in range(0, count, _BLOCK):
                numbers = range(minute * count + begin, minute * count + min(count, begin + _BLOCK))
                infos = [_info(number, options.fps) for number in numbers]
                found = []
                for info in infos:
                    (one,), _ = track(
                        PYTHON.step, [info], [scene.boxes((info.pts or 0) / _SECOND)], [state], [_SETTINGS], grouping
                    )
                    found.append(one)
                file.append(frames_of([_handed(infos, found)])[0], {1: _SERVED})
            file.finish()
        yield facts


def _handed(infos: list[FrameInfo], found: list[Detections]) -> Handed:
    tracks = [one.tracks for one in found if one.tracks is not None]
    return Handed(
        1, infos, [info.seq for info in infos], [len(one.confidence) for one in found], [True] * len(infos),
        joined_bytes([one.xyxy for one in found]), joined_bytes([one.confidence for one in found]),
        joined_bytes([one.class_id for one in found]), joined_bytes([one.id for one in tracks]),
        joined_bytes([one.class_id for one in tracks]), joined_bytes([one.xyxy for one in tracks]),
        {place: PackedNews.of(one.news) for place, one in enumerate(tracks) if one.news is not None}, {},
    )  # fmt: skip


def _info(number: int, fps: float) -> FrameInfo:
    at = round(number / fps * _SECOND)
    return FrameInfo("door", "5e551011", number, at, at, BEGIN + at, _CLOCK, 0, WIDTH, HEIGHT)


def _facts(minute: int) -> FileFacts:
    begin, length = minute * _MINUTE_S * _SECOND, _MINUTE_S * _SECOND
    raw = {
        "id": f"{minute:016x}", "path": f"door/2023-11-14/{minute:06d}.000Z-5e551011-0.mp4", "source": "door",
        "session": "5e551011", "begin": BEGIN + begin, "end": BEGIN + begin + length, "begin_boot": begin,
        "boot_id": "", "first_pts": begin, "last_pts": begin + length, "size": 0, "fragments": 0, "packets": 0,
        "codec": "h264", "width": WIDTH, "height": HEIGHT, "claimed": False, "reason": "minute", "chain": "",
        "previous": None, "since": BEGIN, "covered_until": BEGIN + begin,
    }  # fmt: skip
    return msgspec.convert(raw, FileFacts)
