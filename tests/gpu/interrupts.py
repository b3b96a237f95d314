"""The effect of the core with the GPU's interrupts on a daemon, by threads allowed on it; variants are interleaved.

    python -m tests.gpu.interrupts MODEL.onnx CLIP --labels coco --cache DIR --sources 240

A row for each run: "anywhere" without affinity, "elsewhere" like the daemon, "publisher on it" with only that thread on
the core. Then the share of the core, and of another, that a busy loop does not get.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import sleep

import msgspec
import numpy as np

from daemon.bench.harness import probing, warm_up, watch
from daemon.bench.listener import listening
from daemon.bench.load import Load, config_of
from daemon.bench.steady import RowLog
from daemon.build import build
from daemon.config.root import LogConfig
from daemon.daemon import Daemon
from daemon.log import logging
from daemon.monitoring.probes import GpuProbe
from daemon.seams import Seams
from daemon.system.affinity import interrupts

_SETTLE_S = 1.0
# The share of three seconds in which a loop with iterations under 5 us stood still.
_LOOP = """
import os, sys
from time import perf_counter
os.sched_setaffinity(0, {int(sys.argv[1])})
began = last = perf_counter()
missing = 0.0
while last - began < 3:
    now = perf_counter()
    if now - last > 5e-6:
        missing += now - last
    last = now
sys.stdout.write(f"{missing / 3:.1%}")
"""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("clip", type=Path)
    parser.add_argument("--labels")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--sources", type=int, default=240)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    load = Load((args.clip,), sources=args.sources, paced=True, model=args.model, labels=args.labels)
    config = config_of(replace(load, cache=args.cache, backend=args.backend))
    config = msgspec.structs.replace(config, gpu=msgspec.structs.replace(config.gpu, avoid_interrupts=False))
    rows = RowLog(paced=True)
    with logging(LogConfig(level="error", format="console")):
        app = build(config, Seams(rows=[rows]))
        with listening(app.endpoint), probing() as probe:
            app.start()
            try:
                warm_up(app, [source.id for source in config.active], rows, load.warm_up)
                _turns(app, probe, rows, args.seconds, args.rounds)
            finally:
                app.stop()
    return 0


def _turns(app: Daemon, probe: GpuProbe, rows: RowLog, seconds: float, rounds: int) -> None:
    cores, core = os.sched_getaffinity(0), _busiest()
    sys.stdout.write(
        "threads run     interrupts/s  frames/s  superseded  captured to sent, p50, p99, worst    publisher's CPU\n"
    )
    for mode in ("anywhere", "elsewhere", "publisher on it") * rounds:
        for pid in app.parts.pids:
            _keep(map(int, os.listdir(f"/proc/{pid}/task")), cores - {core} if mode == "elsewhere" else cores)
        if mode == "publisher on it":
            _keep([thread.native_id or 0 for thread in threading.enumerate() if thread.name == "publisher"], {core})
        sleep(_SETTLE_S)
        rows.clear()
        window = watch(app, probe, 0, seconds)
        total = rows.all()["total"] / 1e6
        p50, p99 = np.percentile(total[total > 0], [50, 99])
        sys.stdout.write(
            f"{mode:16}{window.usage.gpu_interrupts_per_s or 0:12.0f} {window.published / window.seconds:9.0f} "
            f"{window.dropped['superseded']:11} {p50:11.1f} {p99:7.1f} {total.max():8.1f} ms "
            f"{window.usage.cpu_us_by_thread['publisher']:12.1f} us a frame\n"
        )
        sys.stdout.flush()
    for pid in app.parts.pids:
        _keep(map(int, os.listdir(f"/proc/{pid}/task")), cores - {core})
    for other in (core, next(iter(cores - {core}))):
        sys.stdout.write(f"of core {other} a loop does not get {_missing(other)}\n")


def _busiest() -> int:
    before = interrupts()
    sleep(_SETTLE_S)
    came = interrupts() - before
    return max(came, key=lambda core: came[core], default=min(os.sched_getaffinity(0)))


def _keep(threads: Iterable[int], to: set[int]) -> None:
    for thread in threads:
        with suppress(ProcessLookupError):  # it has just ended
            os.sched_setaffinity(thread, to)


def _missing(core: int) -> str:
    """Measured by a child process, which waits for no lock."""
    command = [sys.executable, "-c", _LOOP, str(core)]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
