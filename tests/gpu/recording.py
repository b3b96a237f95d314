"""Live cameras without and with recording of all of them: frames lost, latency, CPU of a frame and its parts.

One daemon turns recording on and off, so that the same processes do the same work on the same cores: two runs of one
daemon differ by more than what is asked.

    python -m tests.gpu.recording CLIP --cameras 240 --seconds 15 --turns 4 --store DIR
    python -m tests.gpu.recording CLIP --model MODEL.onnx --labels coco --cache DIR --store DIR

Cameras are MPEG-TS over TCP from processes of this machine, whose CPU is not counted. They send a clip with a key
picture a second; HEVC of 2 and 4 Mbit/s has 8 and 17 kB a picture. Without --model detection is a stand-in that copies
each picture on the GPU and tells one box, so that no TensorRT is needed. Without a GPU: `--dry --cameras 24` over
stand-ins of the driver, which decode nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import mean
from time import monotonic
from typing import Any, NamedTuple

import psutil
import yaml

from daemon.build import build
from daemon.config.load import load
from daemon.log import logging
from daemon.pipeline.drop_causes import CAUSES
from daemon.seams import Seams
from lookout.client import Subscriber
from lookout.messages import Metrics
from tests.gpu.beside import CAMERAS_PER_PROCESS, WORK_BYTES, GpuStandIn, cameras
from tests.support.driver import built
from tests.support.ports import free_port

_SETTLE_S = 6.0  # after a change
_WARM_UP_S = 20.0
_START_S = 90.0
_INTERVAL_S = 5.0
_DRY_WORK_BYTES = 1_000_000
_PARTS = {"recording.process": "store", "capture.processes": "captures"}


class _Window(NamedTuple):
    """What was measured while nothing was changed.

    Attributes:
        frames: that were published.
        lost: by cause.
        p99_ms: of each interval.
        cpu_ms: of a frame, by part.
    """

    records: bool
    frames: int
    fps: float
    lost: Counter[str]
    p99_ms: list[float]
    cpu_ms: dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clip", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--cameras", type=int, default=240)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--turns", type=int, default=4, help="of one window without and one with recording")
    parser.add_argument("--labels")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--store", type=Path, help="a folder for the recordings, which are deleted")
    parser.add_argument("--backend", help="for a model, or fake")
    parser.add_argument("--builder-level", type=int, default=1)
    parser.add_argument("--max-batch", type=int, default=16)
    parser.add_argument("--no-boxes", action="store_true", help="record the video alone")
    parser.add_argument(
        "--work", type=int, default=WORK_BYTES, help="bytes that a batch copies ten times, without a model"
    )
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return _serve(args.clip, None if args.model or args.backend else args.work)
    with tempfile.TemporaryDirectory() as folder:
        if args.dry:
            libraries = str(built(Path(folder), "cuda", "nvcuvid"))
            os.environ.update(LD_LIBRARY_PATH=libraries, LOOKOUT_HOST_FOLDER=folder)
            args.work = _DRY_WORK_BYTES
        return _measure(args)


def _serve(path: Path, work: int | None) -> int:
    """A daemon, until standard input ends; each line there asks for a reload.

    Args:
        work: of the stand-in for detection; None for a real one.
    """
    found = load(path)
    seams = Seams() if work is None else Seams(open_detector=GpuStandIn.opening(work))
    with logging(found.log):
        daemon = build(found, seams, read=lambda: load(path))
        daemon.start()
        try:
            for _ in sys.stdin:
                daemon.reload().result()
                sys.stdout.write("done\n")
                sys.stdout.flush()
        finally:
            daemon.stop()
    return 0


def _measure(args: argparse.Namespace) -> int:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=args.store, ignore_cleanup_errors=True)))
        length = 2 * args.turns * (args.seconds + 2 * _INTERVAL_S + _SETTLE_S) + _WARM_UP_S + _START_S
        count = -(-args.cameras // CAMERAS_PER_PROCESS)
        ports = [stack.enter_context(cameras(args.clip, length)) for _ in range(count)]
        config = _config(args, [f"tcp://127.0.0.1:{port}" for port in ports], store)
        process = stack.enter_context(_daemon(args, folder / "config.yaml", config))
        subscriber = stack.enter_context(closing(Subscriber(config["publisher"]["endpoint"], kinds=("metrics",))))
        watched = _Watched(process, subscriber)
        watched.wait_until_up()
        watched.skip(_WARM_UP_S)
        windows = list[_Window]()
        for turn in range(args.turns):
            for records in (False, True) if turn % 2 == 0 else (True, False):
                if records is not (bool(windows) and windows[-1].records):
                    config["record"]["mode"] = "continuous" if records else "off"
                    watched.reload(folder / "config.yaml", config)
                    watched.skip(_SETTLE_S)
                windows.append(watched.window(args.seconds, records=records))
                _tell(windows[-1])
        _sum_up(windows)
        _tell_store(store)
    return 0


class _Watched:
    """A daemon, and what it tells."""

    def __init__(self, daemon: subprocess.Popen[str], subscriber: Subscriber) -> None:
        self._daemon, self._subscriber = daemon, subscriber

    def wait_until_up(self) -> None:
        begun = monotonic()
        while monotonic() - begun < _START_S:
            if all(row.state == "up" for row in self._next().sources.values()):
                return
        raise AssertionError(f"not all cameras are up after {_START_S:.0f} s")

    def skip(self, seconds: float) -> None:
        begun = monotonic()
        while monotonic() - begun < seconds:
            self._next()

    def reload(self, file: Path, config: dict[str, Any]) -> None:
        file.write_text(yaml.safe_dump(config))
        assert self._daemon.stdin
        assert self._daemon.stdout
        self._daemon.stdin.write("\n")
        self._daemon.stdin.flush()
        assert self._daemon.stdout.readline(), "the daemon has ended"

    def window(self, seconds: float, *, records: bool) -> _Window:
        first, cpu = self._next(), _cpu_s(self._daemon.pid)
        p99, last = list[float](), first
        while last is first or last.uptime_s - first.uptime_s < seconds:
            last = self._next()
            if last.latency:
                p99.append(last.latency["total"].p99 / 1e6)
        assert p99, "nothing was published"
        frames, took = _published(last) - _published(first), last.uptime_s - first.uptime_s
        parts = {part: used - cpu.get(part, 0.0) for part, used in _cpu_s(self._daemon.pid).items()}
        lost = Counter({cause: _lost(last, cause) - _lost(first, cause) for cause in CAUSES})
        each = {part: 1e3 * used / max(frames, 1) for part, used in parts.items()}
        return _Window(records, frames, frames / took, +lost, p99, each)

    def _next(self) -> Metrics:
        while True:
            found = self._subscriber.receive(1.0)
            if isinstance(found, Metrics):
                return found
            assert self._daemon.poll() is None, "the daemon has ended"


@contextmanager
def _daemon(args: argparse.Namespace, file: Path, config: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    file.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "tests.gpu.recording", str(file), "--child", "--work", str(args.work)]
    command += ["--model", str(args.model)] if args.model else []
    command += ["--backend", args.backend] if args.backend else []
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin
    try:
        yield process
        process.stdin.close()
        process.wait(60)
    finally:
        process.kill()
        process.wait()


def _config(args: argparse.Namespace, urls: list[str], store: Path) -> dict[str, Any]:
    model: dict[str, object] = {"path": str(args.model or "none"), "max_batch": args.max_batch}
    model |= {"backend": args.backend} if args.backend else {}
    model |= {"labels": args.labels} if args.labels else {}
    model |= {"cache": str(args.cache), "builder_level": args.builder_level} if args.cache else {}
    quick = {"probesize": "200000", "analyzeduration": "200000"}
    sources = [
        {"id": f"c{number}", "type": "av", "url": urls[number % len(urls)], "kind": "live", "options": quick}
        for number in range(args.cameras)
    ]
    stores = {"main": {"path": str(store / "s"), "min_free_gib": 0}}
    return {
        "model": model,
        "sources": sources,
        "publisher": {"endpoint": f"tcp://127.0.0.1:{free_port()}"},
        "monitor": {"interval_s": _INTERVAL_S},
        "tracking": {"enabled": True},
        "record": {"mode": "off", "tracks": not args.no_boxes, "stores": stores},
        "log": {"level": "warning"},
    }


def _tell(window: _Window) -> None:
    parts = ", ".join(f"{part} {each:.3f}" for part, each in sorted(window.cpu_ms.items()) if each >= 5e-4)
    lost = ", ".join(f"{count} {cause}" for cause, count in window.lost.items())
    sys.stdout.write(
        f"{'recording' if window.records else 'without':>10} {window.fps:8.0f} frames/s, lost {window.lost.total():4}, "
        f"p99 {mean(window.p99_ms):6.1f} ms, CPU {sum(window.cpu_ms.values()):.3f} ms ({parts})"
        f"{lost and f'; {lost}'}\n"
    )
    sys.stdout.flush()


def _sum_up(windows: Sequence[_Window]) -> None:
    """The means of both, and their difference."""
    parts = sorted({part for one in windows for part in one.cpu_ms})
    rows: list[tuple[str, Callable[[_Window], float]]] = [
        ("lost, in a million", lambda one: 1e6 * one.lost.total() / max(1, one.frames)),
        ("p99, ms", lambda one: mean(one.p99_ms)),
        ("CPU, ms", lambda one: sum(one.cpu_ms.values())),
        *((f"CPU, ms: {part}", lambda one, part=part: one.cpu_ms.get(part, 0.0)) for part in parts),
    ]
    sys.stdout.write(f"{'':>30} {'without':>10} {'recording':>10} {'difference':>10}\n")
    for name, figure in rows:
        before, after = (mean(figure(one) for one in windows if one.records is records) for records in (False, True))
        sys.stdout.write(f"{name:>30} {before:10.3f} {after:10.3f} {after - before:+10.3f}\n")


def _tell_store(store: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "daemon", "recordings", "list", "--store", str(store / "s"), "--json"],
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    rows = json.loads(done.stdout)
    seconds, size = (sum(row[name] for row in rows) for name in ("recorded", "bytes"))
    lasted = sum(row["end"] - row["begin"] for row in rows)
    sys.stdout.write(
        f"{'':>10} in the store: {size / 1e9:.2f} GB, {seconds / max(1, lasted):.3%} of {lasted / 1e9:.0f} s of "
        f"{len(rows)} sources\n"
    )


def _cpu_s(daemon: int) -> dict[str, float]:
    """Of the daemon itself, and of all its processes of each kind."""
    process, total = psutil.Process(daemon), defaultdict[str, float](float)
    for one in (process, *process.children(recursive=True)):
        try:
            times, words = one.cpu_times(), one.cmdline()
        except psutil.Error:
            continue
        kind = "daemon" if one == process else next((word for word in words if word.startswith("daemon.")), "others")
        kind = kind.removeprefix("daemon.").removesuffix(".main")
        total[_PARTS.get(kind, kind)] += times.user + times.system
    return total


def _published(metrics: Metrics) -> int:
    return sum(row.published for row in metrics.sources.values())


def _lost(metrics: Metrics, cause: str) -> int:
    return sum(getattr(row.dropped, cause) for row in metrics.sources.values())


if __name__ == "__main__":
    sys.exit(main())
