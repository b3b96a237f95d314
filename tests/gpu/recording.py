"""Live cameras with and without recording of all of them, in turns: frames lost, latency, CPU of a frame and its parts.

    python -m tests.gpu.recording CLIP --cameras 240 --seconds 30 --store DIR
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
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

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

_WARM_UP_S = 20.0
_START_S = 90.0
_DRY_WORK_BYTES = 1_000_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clip", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--cameras", type=int, default=240)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--turns", type=int, default=2)
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
        return _measure_all(args)


def _measure_all(args: argparse.Namespace) -> int:
    sys.stdout.write(f"{'':>10} {'frames/s':>9} {'lost':>6} {'p99 ms':>7} {'CPU ms':>7}  % of a core\n")
    for turn in range(args.turns):
        for records in (False, True) if turn % 2 == 0 else (True, False):
            _measure(args, records=records)
            sys.stdout.flush()
    return 0


def _serve(config: Path, work: int | None) -> int:
    """A daemon, until standard input ends.

    Args:
        work: of the stand-in for detection; None for a real one.
    """
    found = load(config)
    seams = Seams() if work is None else Seams(open_detector=GpuStandIn.opening(work))
    with logging(found.log):
        daemon = build(found, seams)
        daemon.start()
        try:
            sys.stdin.read()
        finally:
            daemon.stop()
    return 0


def _measure(args: argparse.Namespace, *, records: bool) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=args.store, ignore_cleanup_errors=True)))
        length = args.seconds + _WARM_UP_S + _START_S
        count = -(-args.cameras // CAMERAS_PER_PROCESS)
        ports = [stack.enter_context(cameras(args.clip, length)) for _ in range(count)]
        config = _config(args, [f"tcp://127.0.0.1:{port}" for port in ports], store if records else None)
        with _daemon(args, folder / "config.yaml", config) as process:
            endpoint = str(config["publisher"]["endpoint"])
            _row(args, process, endpoint, "recording" if records else "without")
        if records:
            _tell_store(store)
            shutil.rmtree(store, ignore_errors=True)


@contextmanager
def _daemon(args: argparse.Namespace, file: Path, config: dict[str, Any]) -> Iterator[psutil.Process]:
    file.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", __spec__.name, str(file), "--child", "--work", str(args.work)]
    command += ["--model", str(args.model)] if args.model else []
    command += ["--backend", args.backend] if args.backend else []
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert process.stdin
    try:
        yield psutil.Process(process.pid)
        process.stdin.close()
        process.wait(60)
    finally:
        process.kill()
        process.wait()


def _config(args: argparse.Namespace, urls: list[str], store: Path | None) -> dict[str, Any]:
    model: dict[str, object] = {"path": str(args.model or "none"), "max_batch": args.max_batch}
    model |= {"backend": args.backend} if args.backend else {}
    model |= {"labels": args.labels} if args.labels else {}
    model |= {"cache": str(args.cache), "builder_level": args.builder_level} if args.cache else {}
    quick = {"probesize": "200000", "analyzeduration": "200000"}
    sources = [
        {"id": f"c{number}", "type": "av", "url": urls[number % len(urls)], "kind": "live", "options": quick}
        for number in range(args.cameras)
    ]
    config: dict[str, Any] = {
        "model": model,
        "sources": sources,
        "publisher": {"endpoint": f"tcp://127.0.0.1:{free_port()}"},
        "monitor": {"interval_s": 5.0},
        "tracking": {"enabled": True},
        "log": {"level": "warning"},
    }
    if store is not None:
        stores = {"main": {"path": str(store / "s"), "min_free_gib": 0}}
        config["record"] = {"mode": "continuous", "tracks": not args.no_boxes, "stores": stores}
    return config


def _row(args: argparse.Namespace, daemon: psutil.Process, endpoint: str, name: str) -> None:
    with closing(Subscriber(endpoint, kinds=("metrics",))) as subscriber:
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
                first, cpu = found, _cpu_s(daemon)
            last = found
            if found.latency and first is not found:
                worst = max(worst, found.latency["total"].p99)
        used = {name: seconds - cpu.get(name, 0.0) for name, seconds in _cpu_s(daemon).items()}
    assert first is not None
    frames = _published(last) - _published(first)
    seconds = last.uptime_s - first.uptime_s
    shares = ", ".join(f"{name} {100 * cpu / seconds:.1f}" for name, cpu in sorted(used.items()) if cpu)
    each = 1e3 * sum(used.values()) / max(frames, 1)
    causes = Counter({cause: _lost(last, cause) - _lost(first, cause) for cause in CAUSES})
    told = ", ".join(f"{count} {cause}" for cause, count in causes.items() if count)
    lost = f"{causes.total():6} {worst / 1e6:7.1f}"
    sys.stdout.write(f"{name:>10} {frames / seconds:9.0f} {lost} {each:7.3f}  {shares}{told and f'; lost: {told}'}\n")


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


def _cpu_s(process: psutil.Process) -> dict[str, float]:
    """Of the daemon itself, and of all its processes of each kind."""
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


def _lost(metrics: Metrics, cause: str) -> int:
    return sum(getattr(row.dropped, cause) for row in metrics.sources.values())


if __name__ == "__main__":
    sys.exit(main())
