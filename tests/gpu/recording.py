"""Live cameras with and without recording of all of them, in turns: frames lost, latency, CPU of a frame and its parts.

    python -m tests.gpu.recording MODEL.onnx CLIP --cameras 240 --seconds 30 --labels coco --cache DIR --store DIR

Cameras are MPEG-TS over TCP from one process of this machine, whose CPU is not counted. A clip with a key picture a
second and some 17 kB a picture is what cameras send. On a CPU: --backend fake --cameras 4.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from time import monotonic

import psutil

from daemon.pipeline.drop_causes import CAUSES
from lookout.messages import Metrics
from tests.support.daemon import Lookout

_WARM_UP_S = 20.0
_START_S = 90.0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("clip", type=Path)
    parser.add_argument("--cameras", type=int, default=240)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--labels")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--store", type=Path, help="a folder for the recordings, which are deleted")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--builder-level", type=int, default=1)
    parser.add_argument("--max-batch", type=int, default=16)
    args = parser.parse_args()
    sys.stdout.write(f"{'':>10} {'frames/s':>9} {'lost':>6} {'p99 ms':>7} {'CPU ms':>7}  % of a core\n")
    for turn in range(args.turns):
        for records in (False, True) if turn % 2 == 0 else (True, False):
            _measure(args, records=records)
            sys.stdout.flush()
    return 0


def _measure(args: argparse.Namespace, *, records: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir=args.store) as store:
        length = args.seconds + _WARM_UP_S + _START_S
        command = [sys.executable, "-m", "tests.support.ts_cameras", str(args.clip), "--seconds", str(length)]
        cameras = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert cameras.stdin is not None
        assert cameras.stdout is not None
        url = f"tcp://127.0.0.1:{int(cameras.stdout.readline())}"
        try:
            with Lookout(Path(folder), _config(args, url, Path(store) if records else None)) as lookout:
                _row(args, lookout, "recording" if records else "without")
                lookout.stop()
        finally:
            cameras.stdin.close()
            cameras.wait()
        if records:
            _tell_store(Path(store))
            shutil.rmtree(store, ignore_errors=True)
            Path(store).mkdir()


def _config(args: argparse.Namespace, url: str, store: Path | None) -> dict[str, object]:
    model: dict[str, object] = {"path": str(args.model), "backend": args.backend, "max_batch": args.max_batch}
    model |= {"labels": args.labels} if args.labels else {}
    model |= {"cache": str(args.cache), "builder_level": args.builder_level} if args.cache else {}
    quick = {"probesize": "200000", "analyzeduration": "200000"}
    sources = [{"id": f"c{n}", "type": "av", "url": url, "kind": "live", "options": quick} for n in range(args.cameras)]
    more: dict[str, object] = {}
    if store is not None:
        more["record"] = {"mode": "continuous", "stores": {"main": {"path": str(store / "s"), "min_free_gib": 0}}}
    return {"model": model, "sources": sources, "monitor": {"interval_s": 5.0}, "tracking": {"enabled": True}, **more}


def _row(args: argparse.Namespace, lookout: Lookout, name: str) -> None:
    with lookout.subscribe("metrics") as subscriber:
        begun = monotonic()
        while monotonic() - begun < _START_S:  # until all are up
            found = subscriber.receive(1.0)
            if isinstance(found, Metrics) and all(row.state == "up" for row in found.sources.values()):
                break
        warm = monotonic()
        first = last = None
        worst = 0
        cpu: dict[str, float] = {}
        while last is None or last.uptime_s - (first.uptime_s if first else 0) < args.seconds:
            found = subscriber.receive(1.0)
            if not isinstance(found, Metrics) or monotonic() - warm < _WARM_UP_S:
                continue
            if first is None:
                first, cpu = found, _cpu_s(lookout)
            last = found
            if found.latency and first is not found:
                worst = max(worst, found.latency["total"].p99)
        used = {name: seconds - cpu.get(name, 0.0) for name, seconds in _cpu_s(lookout).items()}
    assert first is not None
    frames = _published(last) - _published(first)
    lost = _lost(last) - _lost(first)
    seconds = last.uptime_s - first.uptime_s
    shares = ", ".join(f"{name} {100 * cpu / seconds:.1f}" for name, cpu in sorted(used.items()) if cpu)
    each = 1e3 * sum(used.values()) / max(frames, 1)
    sys.stdout.write(f"{name:>10} {frames / seconds:9.0f} {lost:6} {worst / 1e6:7.1f} {each:7.3f}  {shares}\n")


def _tell_store(store: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "daemon", "recordings", "list", "--store", str(store / "s"), "--json"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    sizes = sum(path.stat().st_size for path in store.rglob("*.mp4"))
    sys.stdout.write(f"{'':>10} {sizes / 1e9:.2f} GB in the store; {done.stdout.strip()[:300]}\n")


def _cpu_s(lookout: Lookout) -> dict[str, float]:
    """Of the daemon itself, and of all its processes of each kind."""
    process = psutil.Process(lookout.process.pid)
    total = defaultdict[str, float](float)
    for one in (process, *process.children(recursive=True)):
        try:
            times, words = one.cpu_times(), one.cmdline()
        except psutil.Error:
            continue
        kind = "daemon" if one == process else next((word for word in words if word.startswith("daemon.")), "others")
        total[kind.removeprefix("daemon.").removesuffix(".main")] += times.user + times.system
    return total


def _published(metrics: Metrics) -> int:
    return sum(row.published for row in metrics.sources.values())


def _lost(metrics: Metrics) -> int:
    return sum(getattr(row.dropped, cause) for row in metrics.sources.values() for cause in CAUSES)


if __name__ == "__main__":
    sys.exit(main())
