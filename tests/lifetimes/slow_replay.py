"""`python -m tests.lifetimes.slow_replay`: lossless replays on a busy machine, with a detector that takes seconds.

Each round replays the clips twice: read in the daemon's process, and in capture processes. Programs that do nothing but
turn take the machine's processors meanwhile. Every frame of every clip must be published, and the exit code be 0.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import structlog

from daemon.build import build
from daemon.config.model import ModelConfig
from daemon.config.publisher import PublisherConfig
from daemon.config.root import BoardConfig, Config
from daemon.config.sources import AvConfig
from daemon.redact import Url
from daemon.seams import Seams
from detectors.fake.detector import FakeDetector
from lookout.client import Subscriber
from lookout.messages import Detections
from tests.support import clips

_CLIPS = 4
_FRAMES = 45  # of each; three seconds of H.264 with B-frames
_LONG_S = 600.0


class Slow:
    """Opens the detector; pickled for the process of a replay."""

    def __init__(self, batch_s: float) -> None:
        self._batch_s = batch_s

    def __call__(self, _backend: object, options: object) -> FakeDetector:
        return FakeDetector(options, self._batch_s)  # type: ignore[arg-type]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--loops", type=int, default=5, help="programs that only take time")
    parser.add_argument("--batch-seconds", type=float, default=3.0, help="that the detector takes")
    args = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="lookout-replay-") as folder, ExitStack() as stack:
        clip = clips.bframes(Path(folder) / "clip.mp4")
        for _ in range(args.loops):
            loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(loop.wait)
            stack.callback(loop.kill)
        for number in range(1, args.rounds + 1):
            for processes in (0, 2):
                began = time.monotonic()
                code, frames = _replay(clip, processes, args.batch_seconds)
                whole = code == 0 and list(frames.values()) == [_FRAMES] * _CLIPS
                failed += not whole
                sys.stdout.write(
                    f"round {number}, {processes} capture processes: {sum(frames.values())} of {_CLIPS * _FRAMES} "
                    f"frames, exit code {code}, {time.monotonic() - began:.0f} s{'' if whole else ': NOT WHOLE'}\n"
                )
                sys.stdout.flush()
    return int(failed > 0)


def _replay(clip: Path, processes: int, batch_s: float) -> tuple[int | None, Counter[str]]:
    """Exit code of a replay, and frames of each clip that were published exactly once."""
    folder = Path(tempfile.mkdtemp(dir=clip.parent))
    endpoint = f"ipc://{folder}/socket"
    replay = multiprocessing.get_context("spawn").Process(target=_run, args=(clip, processes, batch_s, endpoint))
    seen: set[tuple[str, int]] = set()
    with Subscriber(endpoint, kinds=["detections"], high_water_mark=100_000) as subscriber:
        replay.start()
        until = time.monotonic() + _LONG_S
        while time.monotonic() < until:
            message = subscriber.receive(0.5)
            if isinstance(message, Detections):
                seen.add((message.source, message.seq))
            elif not replay.is_alive():
                break
        replay.kill()
        replay.join()
    return replay.exitcode, Counter(source for source, _ in seen)


def _run(clip: Path, processes: int, batch_s: float, endpoint: str) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    config = Config(
        model=ModelConfig(path=Path("none"), backend="fake", max_batch=16),
        sources=[AvConfig(id=f"clip-{number}", url=Url(str(clip)), decode="cpu") for number in range(_CLIPS)],
        capture_processes=processes,
        board=BoardConfig(mode="lossless"),
        publisher=PublisherConfig(endpoint=endpoint, wait_for_subscriber_s=60),
    )
    sys.exit(build(config, Seams(open_detector=Slow(batch_s))).run())


if __name__ == "__main__":
    sys.exit(main())
