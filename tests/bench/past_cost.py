"""`python -m tests.bench past`: how long the timeline of a day takes, over HTTP, from a store of minute files.

Files of tracks are as long as a detector at that rate makes them, with other frames than their time says. Nothing reads
frames here: the index tells what is asked, or the end of a file where the index does not know. There is no video.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from struct import Struct
from tempfile import TemporaryDirectory
from time import monotonic
from zlib import crc32

import httpx
import numpy as np
import psutil

from daemon.clock import SystemClock
from daemon.config.http import HttpConfig, TokenConfig
from daemon.config.recording import RecordConfig, StoreConfig
from daemon.config.root import LogConfig
from daemon.playback.process import PlaybackProcess, playback_order
from daemon.recording.index import Index
from daemon.recording.records import FileFacts
from daemon.recording.store import Store
from daemon.recording.tracks.activity import END, Activity, activity_at_end, packed
from daemon.recording.tracks.track_records import tracks_path
from daemon.redact import Secret
from tests.support.seen import Seen, write_seen

_SECOND, _MINUTE = 1_000_000_000, 60
_BEGIN = 1_795_651_200  # s, UTC: midnight
_BLOCK_S = 2
_TOKEN = secrets.token_hex(16)
_RECORD = Struct("<IIB")
_PATIENCE_S = 120.0


@dataclass(frozen=True)
class PastOptions:
    """Options of the measurement; see `python -m tests.bench past --help`."""

    cameras: int = 8
    hours: float = 24.0
    fps: float = 5.0
    objects: int = 4
    step: int = 60
    rounds: int = 3
    seed: int = 0


@dataclass(frozen=True)
class Took:
    """One way to ask, medians over the rounds.

    Attributes:
        one_ms, all_ms: from the request of one camera, or those of all at once, to the last answer.
        cpu_ms: of the process that answers, for those of all.
    """

    one_ms: float
    all_ms: float
    cpu_ms: float


@dataclass(frozen=True)
class PastFound:
    """
    Attributes:
        files: of each camera.
        kib: of a file of tracks.
        answer_kib: of activity.
        spans: what is recorded.
        by_index: activity that the index knows.
        by_files: activity by the ends of files that the system has in memory, by a process that does not know it yet.
        from_disk: likewise, of files that are read from the disk.
        again: likewise, by a process that knows it.
    """

    files: int
    kib: float
    answer_kib: float
    spans: Took
    by_index: Took
    by_files: Took
    from_disk: Took
    again: Took


def past(options: PastOptions) -> PastFound:
    """Run and measure."""
    files = round(options.hours * 60)
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "store"
        paths = _write(folder, options, files)
        kib = sum(path.stat().st_size for path in paths) / len(paths) / 1024
        disk = _first(folder, options, lambda: _forget(paths))
        memory = _first(folder, options, lambda: None)
        with _client(folder) as (client, process):
            answer_kib = _ask(client, "activity", options, options.cameras) / 1024
            again = _took(client, process, "activity", options)
            spans = _took(client, process, "spans", options)
        _put_into_index(folder, paths)
        with _client(folder) as (client, process):
            index = _took(client, process, "activity", options)
    return PastFound(files, kib, answer_kib, spans, index, memory, disk, again)


def _took(client: httpx.Client, process: psutil.Process, what: str, options: PastOptions) -> Took:
    rows = []
    for _ in range(options.rounds):
        one_ms, _ = _timed(process, partial(_ask, client, what, options, 1))
        rows.append((one_ms, *_timed(process, partial(_ask, client, what, options, options.cameras))))
    return Took(*(median(column) for column in zip(*rows)))


def _first(folder: Path, options: PastOptions, prepare: Callable[[], None]) -> Took:
    """Activity, by processes that have not been asked for it."""
    rows = []
    for _ in range(options.rounds):
        prepare()
        with _client(folder) as (client, process):
            one_ms, _ = _timed(process, partial(_ask, client, "activity", options, 1))
        prepare()
        with _client(folder) as (client, process):
            rows.append((one_ms, *_timed(process, partial(_ask, client, "activity", options, options.cameras))))
    return Took(*(median(column) for column in zip(*rows)))


def _put_into_index(folder: Path, paths: list[Path]) -> None:
    """As a recorder does it, file by file."""
    with closing(Store.open(folder)) as store, closing(Index(store)) as index:
        ids = {tracks_path(facts.path): facts.id for facts in index.files()}
        for path in paths:
            with path.open("rb") as file:
                found = activity_at_end(file.fileno())
            if found is not None:
                index.put_activity(ids[str(path.relative_to(folder))], found.first, found.counts)


def _write(folder: Path, options: PastOptions, files: int) -> list[Path]:
    """The store; returns its files of tracks."""
    random = np.random.default_rng(options.seed)
    found = []
    with closing(Store.init(folder)) as store, closing(Index(store)) as index:
        for camera in range(options.cameras):
            rows = [_facts(f"cam-{camera}", number) for number in range(files)]
            index.add_files([(facts, ()) for facts in rows])
            for facts in rows:
                (folder / facts.path).parent.mkdir(parents=True, exist_ok=True)
            frames, crc = _frames(store, rows[0], options)
            for facts in rows:
                counts = random.integers(0, options.objects + 1, _MINUTE).astype("<u2")
                end = packed(Activity(facts.begin // _SECOND, counts.tobytes()))
                path = folder / tracks_path(facts.path)
                path.write_bytes(frames + _RECORD.pack(len(end), crc32(end, crc32(bytes((END,)), crc)), END) + end)
                found.append(path)
    return found


def _facts(source: str, number: int) -> FileFacts:
    begin = (_BEGIN + number * _MINUTE) * _SECOND
    day, at = number // 1440, number % 1440
    path = f"{source}/2026-11-{26 + day:02}/{at // 60:02}{at % 60:02}00.000Z-5e551011-{number}.mp4"
    return FileFacts(
        id=secrets.token_hex(8), path=path, source=source, session="5e551011", begin=begin,
        end=begin + _MINUTE * _SECOND, begin_boot=begin, boot_id="b007", first_pts=begin, last_pts=begin + 1,
        size=30 << 20, fragments=60, packets=1800, codec="h264", width=1920, height=1080, claimed=number % 30 == 0,
        reason="minute", chain="0" * 64, previous=None, since=_BEGIN * _SECOND, covered_until=begin,
    )  # fmt: skip


def _frames(store: Store, facts: FileFacts, options: PastOptions) -> tuple[bytes, int]:
    """A file of tracks without its end, and the CRC of its last record."""
    count, video = round(_BLOCK_S * options.fps), store.path / facts.path
    ids = range(1, options.objects + 1)
    blocks = [
        [Seen(None, facts.begin + (block * count + place) * 200_000_000, ids) for place in range(count)]
        for block in range(_MINUTE // _BLOCK_S)
    ]
    video.touch()
    write_seen(store, facts, blocks, same_stream=False, ends=False)
    video.unlink()
    found = (store.path / tracks_path(facts.path)).read_bytes()
    at = crc = 0
    while (begin := at or 8) < len(found):
        length, crc, _ = _RECORD.unpack_from(found, begin)
        at = begin + _RECORD.size + length
    return found, crc


def _forget(paths: list[Path]) -> None:
    """Have the system read the files from the disk again."""
    os.sync()
    for path in paths:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def _client(folder: Path) -> Iterator[tuple[httpx.Client, psutil.Process]]:
    """Of a process that has not been asked for anything but locks, and that process."""
    http = HttpConfig(tokens=[TokenConfig("bench", "view", Secret(_TOKEN))])
    record = RecordConfig(stores={"main": StoreConfig(folder)}, port=0)
    process = PlaybackProcess(playback_order(http, record, LogConfig(level="error")), SystemClock())
    process.start()
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{process.port}/api/v1/recordings",
            headers={"Authorization": f"Bearer {_TOKEN}"},
            timeout=_PATIENCE_S,
        ) as client:
            client.get("/cam-0/locks").raise_for_status()
            yield client, psutil.Process(process.pid)
    finally:
        process.request_stop()
        process.finish(_PATIENCE_S)


def _ask(client: httpx.Client, what: str, options: PastOptions, cameras: int) -> int:
    """The answers of some cameras at once; returns the bytes of the longest."""
    end = _BEGIN + round(options.hours * 3600)
    times = {"from": _BEGIN * _SECOND, "to": end * _SECOND}
    query = times | ({"step": options.step} if what == "activity" else {})

    def one(camera: int) -> int:
        answer = client.get(f"/cam-{camera}/{what}", params=query)
        (store,) = answer.raise_for_status().json()["stores"]
        if what == "activity" and (store["partial"] or None in store["values"]):
            raise RuntimeError("the answer is not whole")
        return len(answer.content)

    with ThreadPoolExecutor(cameras) as pool:
        return max(pool.map(one, range(cameras)))


def _timed(process: psutil.Process, work: Callable[[], object]) -> tuple[float, float]:
    """Ms, and CPU ms of a process."""
    begun, used = monotonic(), process.cpu_times()
    work()
    took, now = monotonic() - begun, process.cpu_times()
    return took * 1e3, (now.user + now.system - used.user - used.system) * 1e3
