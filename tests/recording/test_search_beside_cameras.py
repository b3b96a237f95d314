"""A search of the past beside live cameras takes no frame from them, on a machine that is busy as well.

python -m pytest -s -m long tests/recording/test_search_beside_cameras.py
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from daemon.recording.index import Index
from daemon.recording.store import Store
from tests.bench.search_cost import BEGIN, RULES, SearchOptions, fill
from tests.recording.playback_rig import OPERATE, VIEW
from tests.recording.rig import SECOND
from tests.support.clips import ffmpeg
from tests.support.daemon import PATIENCE_S, Lookout, wait_until
from tests.support.ports import free_port

pytestmark = [pytest.mark.long, pytest.mark.needs("ffmpeg"), pytest.mark.timeout(1800)]
CAMERAS = 8
RATE = 1  # picture a second of each: so few that a busy machine loses none of them by itself
PICTURES = 30  # of each camera in a span
SPANS = 3  # with searches that are to be without a loss, each between two without any
MOST_SPANS = 9
OPTIONS = SearchOptions(objects=5, minutes=5)


@dataclass(frozen=True)
class Counts:
    """Of all cameras: frames that were captured and dropped, and packets that did not reach the disk."""

    captured: int
    dropped: int
    lost: int

    def since(self, before: Counts) -> Counts:
        return Counts(self.captured - before.captured, self.dropped - before.dropped, self.lost - before.lost)

    @property
    def is_clean(self) -> bool:
        return self.dropped == self.lost == 0


class Watched:
    """A daemon that records its cameras, and has a past of another one to be asked."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        clip = folder / "camera.ts"
        drawn = f"testsrc2=size=160x90:rate={RATE}:duration=20"
        ffmpeg("-f", "lavfi", "-i", drawn, "-c:v", "libx264", "-bf", "0", "-g", str(RATE), "-pix_fmt", "yuv420p", clip)
        url = stack.enter_context(_cameras(clip))
        with closing(Store.open(folder / "past")) as store, closing(Index(store)) as index:
            fill(store, index, OPTIONS)
        self._ports = free_port(), free_port()
        self.used_s = 0.0  # of CPU, by searches that were ended
        self._lookout = stack.enter_context(Lookout(folder, self._config(folder, url)))
        wait_until(lambda: self._captured() >= 3, "all cameras are seen", 4 * PATIENCE_S)

    def _config(self, folder: Path, url: str) -> dict[str, object]:
        names = [f"cam-{number}" for number in range(CAMERAS)]
        record = {"stores": ["main"]}
        roles = {"view": VIEW, "operate": OPERATE}
        tokens = [{"name": role, "role": role, "token": token} for role, token in roles.items()]
        stores = {name: {"path": str(folder / name), "min_free_gib": 0} for name in ("main", "past")}
        return {
            "sources": [{"id": name, "type": "av", "url": url, "record": record} for name in names],
            "model": {"path": "none", "backend": "fake"},
            "http": {"enabled": True, "port": self._ports[0], "tokens": tokens},
            "record": {"stores": stores, "mode": "continuous", "port": self._ports[1],
                       "keep": {"continuous_days": 36_500, "events_days": 36_500}},
        }  # fmt: skip

    def counts(self) -> Counts:
        rows = self._samples()
        return Counts(
            *(
                round(sum(value for name, _, value in rows if name == wanted))
                for wanted in (
                    "lookout_frames_captured_total",
                    "lookout_frames_dropped_total",
                    "lookout_recording_packets_lost_total",
                )
            )
        )

    def show(self) -> Counts:
        """What happens while each camera sends some pictures."""
        before, aim = self.counts(), self._captured() + PICTURES
        wait_until(lambda: self._captured() >= aim, "pictures come", 4 * PATIENCE_S)
        return self.counts().since(before)

    @contextmanager
    def searching(self) -> Iterator[None]:
        """Two searches at a time, as many as a page may have, again and again."""
        over = threading.Event()
        with ThreadPoolExecutor(2) as threads:
            running = [threads.submit(self._search, token, over) for token in (VIEW, OPERATE)]
            try:
                wait_until(lambda: len(self.searches()) == 2, "two processes search", 4 * PATIENCE_S)
                yield
            finally:
                over.set()
                wait_until(lambda: self._end_all(running), "the searches end", 4 * PATIENCE_S)
            for one in running:
                one.result()

    def _search(self, token: str, over: threading.Event) -> None:
        body = {"source": "door", "store": "past", "rule": RULES[0], "from": str(BEGIN),
                "to": str(BEGIN + OPTIONS.minutes * 60 * SECOND)}  # fmt: skip
        url, headers = f"http://127.0.0.1:{self._ports[1]}/api/v1/search", {"Authorization": f"Bearer {token}"}
        with httpx.Client(headers=headers, timeout=10 * PATIENCE_S) as client:
            while not over.is_set():
                answer = client.post(url, json=body)
                assert answer.status_code in (200, 429), answer.text  # 429: the one before has not given its place back

    def _end_all(self, running: Sequence[Future[None]]) -> bool:
        """A busy machine gives them so little that their end is not waited for."""
        for child in self.searches():
            with suppress(psutil.Error):
                self.used_s += sum(child.cpu_times()[:2])
                child.kill()
        return all(one.done() for one in running)

    def searches(self) -> list[psutil.Process]:
        return self._lookout.children("daemon.playback.search_process")

    def _captured(self) -> int:
        """By the camera that has sent the fewest."""
        found = [value for name, _, value in self._samples() if name == "lookout_frames_captured_total"]
        return round(min(found)) if len(found) == CAMERAS else 0

    def _samples(self) -> list[tuple[str, object, float]]:
        try:
            text = httpx.get(f"http://127.0.0.1:{self._ports[0]}/metrics", timeout=PATIENCE_S).text
        except httpx.ConnectError:
            return []  # it begins
        rows = [one for family in text_string_to_metric_families(text) for one in family.samples]
        return [(one.name, one.labels, one.value) for one in rows]


@contextmanager
def _cameras(clip: Path) -> Iterator[str]:
    """Cameras that send it for an hour; the URL of each."""
    command = [sys.executable, "-m", "tests.support.ts_cameras", str(clip), "--seconds", "3600"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"tcp://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with ExitStack() as stack:
        yield Watched(tmp_path_factory.mktemp("beside"), stack)


def test_searches_beside_eight_live_cameras_cost_no_frame(watched: Watched) -> None:
    """Spans with two searches lie between spans without any: where these lose nothing, that loses nothing either."""
    clean, lossy, found = 0, list[Counts](), list[tuple[Counts, Counts]]()
    alone = watched.show()
    for _ in range(MOST_SPANS):
        with watched.searching():
            before, beside = alone, watched.show()
        alone = watched.show()
        found.append((alone, beside))
        sys.stdout.write(
            f"\nwithout {alone}, beside searches {beside}; the last ones had {watched.used_s:.1f} s of CPU\n"
        )
        watched.used_s = 0.0
        if before.is_clean and alone.is_clean:
            clean += beside.is_clean
            lossy += [] if beside.is_clean else [beside]
        if clean == SPANS:
            break
    assert not lossy
    assert clean == SPANS, f"this machine loses frames by itself, so nothing can be said: {found}"
