"""A daemon with live cameras while another one starts, runs and ends beside it, on the same GPU or on another.

    python -m tests.gpu.beside CLIP [--cameras 240] [--more 120] [--gpus 0 1] [--turns 2] [--storm 30]
    python -m tests.gpu.beside CLIP --starts [--cameras 240] [--gpus 0 1 2 3]

With --storm another one connects to so many cameras that break off every other second. With --starts one starts on each
GPU, all at once, and nothing else is measured. --json writes the rows, too.

Cameras are MPEG-TS over TCP from processes of this machine. Detection is a stand-in that copies each picture on the GPU
and keeps it busy for some milliseconds, so that no TensorRT is needed: figures are for comparison with each other.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event as Flag
from time import monotonic, monotonic_ns
from typing import Any

import msgspec
import numpy as np

from daemon.bench.harness import probing
from daemon.bench.listener import listening
from daemon.bench.load import Load, config_of
from daemon.bench.steady import RowLog, latencies_ms
from daemon.build import build
from daemon.config.root import Config, LogConfig, MonitorConfig
from daemon.config.sources import AvConfig
from daemon.daemon import Daemon
from daemon.log import logging
from daemon.pipeline.drop_causes import CAUSES
from daemon.redact import Secret, Url
from daemon.seams import Seams
from detectors.cuda import Device, DeviceBuffer, Event, Stream
from detectors.detections import Detections
from detectors.host_input import HostCutter
from detectors.port import DeviceImage, Fetch, HostImage, Image, ModelInfo, Options, PreparedImage, StageTimes, fetched

CAMERAS_PER_PROCESS = 120
_SETTLE_S = 4.0
_STEADY_S, _STEADY_AT_MOST_S, _FRESH_MS = 3.0, 30.0, 100.0
WORK_BYTES, _WORK_COPIES = 256 << 20, 10  # some 2 ms of an H100
_UP_S = 180.0
_BREAKS_S = 2.0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("clip", type=Path)
    parser.add_argument("--cameras", type=int, default=240)
    parser.add_argument("--more", type=int, default=120)
    parser.add_argument("--gpus", type=int, nargs="+", default=[0, 0])
    parser.add_argument("--turns", type=int, default=2, help="starts of the other")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--work", type=int, default=WORK_BYTES, help="bytes that a batch copies ten times")
    parser.add_argument("--storm", type=int, default=0, help="cameras that break off again and again")
    parser.add_argument("--starts", action="store_true", help="only start, on all GPUs at once")
    parser.add_argument("--mps", default="auto")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return _serve(args, [int(port) for port in args.child[0].split(",")], int(args.child[1]))
    length = 200.0 + args.turns * (60.0 + 2 * args.seconds)
    report = _Report(args.json)
    with ExitStack() as stack:
        if args.starts:
            _start_all(stack, args, report)
            return 0
        count = -(-(args.cameras + args.more) // CAMERAS_PER_PROCESS)
        ports = [stack.enter_context(cameras(args.clip, length)) for _ in range(count)]
        split = max(1, args.cameras // CAMERAS_PER_PROCESS)
        flapping = [stack.enter_context(cameras(args.clip, length, _BREAKS_S))] if args.storm else []
        _run(stack, args, (ports[:split], ports[split:] or ports, flapping), report)
    return 0


class _Report:
    """Rows by name, which are printed and written to a file."""

    def __init__(self, file: Path | None) -> None:
        self._file, self._rows = file, dict[str, Any]()

    def add(self, name: str, found: dict[str, Any], more: str = "") -> None:
        if "fps" in found:
            _write(_row(name, found) + more)
        self._rows[name] = found
        if self._file:
            self._file.write_text(json.dumps(self._rows, indent=1))


def _start_all(stack: ExitStack, args: argparse.Namespace, report: _Report) -> None:
    """One daemon on each GPU, at once."""
    count = -(-args.cameras // CAMERAS_PER_PROCESS)
    ports = [[stack.enter_context(cameras(args.clip, _UP_S + 60.0)) for _ in range(count)] for _ in args.gpus]
    processes = [
        stack.enter_context(_spawned(args, theirs, args.cameras, gpu)) for theirs, gpu in zip(ports, args.gpus)
    ]
    for gpu, child in zip(args.gpus, map(_Child, processes)):
        _write(f"GPU {gpu}: {args.cameras} cameras are up after {child.up_s:.1f} s, {child.lost} frames lost")
        report.add(f"start on GPU {gpu}", {"up_s": child.up_s, "lost_frames": child.lost})


def _run(stack: ExitStack, args: argparse.Namespace, ports: Sequence[Sequence[int]], report: _Report) -> None:
    ours, theirs, flapping = ports
    _write(
        f"{'':30}{'seconds':>8}{'frames/s':>10}{'lost':>9}{'p50':>8}{'p99':>8}{'max':>9} ms, due to sent   CPU ms  host"
    )
    one = stack.enter_context(_Child.of(args, ours, args.cameras, args.gpus[0]))
    _write(f"{args.cameras} cameras are up after {one.up_s:.1f} s, {one.lost} frames lost")
    report.add("start", {"up_s": one.up_s, "lost_frames": one.lost})
    pause, begun = Flag(), monotonic()
    while True:  # sources that have waited for their decoders are late at first
        one.tell("begin")
        pause.wait(_STEADY_S)
        found = one.ask("end")
        if found["p99"] < _FRESH_MS or monotonic() - begun > _STEADY_AT_MOST_S:
            break
    _write(f"fresh {monotonic() - begun:.0f} s later")
    one.tell("begin")
    pause.wait(args.seconds)
    report.add("alone", one.ask("end"))
    for turn in range(args.turns):
        one.tell("begin")
        with _Child.of(args, theirs, args.more, args.gpus[-1]) as other:
            found = one.ask("end")
            more = f"   {args.more} up in {other.up_s:.1f} s, {other.lost} frames lost"
            report.add(f"another starts, turn {turn + 1}", {**found, "up_s": other.up_s}, more)
            pause.wait(_SETTLE_S)
            one.tell("begin")
            pause.wait(args.seconds)
            report.add("beside it", one.ask("end"))
            one.tell("begin")
            other.tell("stop")
            other.wait()
        report.add("another ends", one.ask("end"))
        pause.wait(_SETTLE_S / 2)
    if flapping:
        with _Child.of(args, flapping, args.storm, args.gpus[-1]) as other:
            one.tell("begin")
            pause.wait(args.seconds)
            report.add(f"{args.storm} connect again and again", one.ask("end"))
            other.tell("stop")
            other.wait()
    one.tell("stop")
    one.wait()


def _row(name: str, found: dict[str, Any]) -> str:
    return (
        f"{name:30}{found['seconds']:8.1f}{found['fps']:10.0f}{found['lost']:9.3%}{found['p50']:8.1f}{found['p99']:8.1f}"
        f"{found['max']:9.1f} {'':18}{found['cpu_ms']:6.3f}{found['host']:6.0%}"
    )


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@contextmanager
def cameras(clip: Path, seconds: float, breaks_s: float | None = None) -> Iterator[int]:
    """The port of a process of cameras, of `CAMERAS_PER_PROCESS` at most."""
    command = [sys.executable, "-m", "tests.support.ts_cameras", str(clip), "--seconds", str(seconds)]
    command += ["--breaks", str(breaks_s)] if breaks_s else []
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin
    assert process.stdout
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait()


@contextmanager
def _spawned(args: argparse.Namespace, ports: Sequence[int], cameras: int, gpu: int) -> Iterator[subprocess.Popen[str]]:
    wanted = ["--child", ",".join(map(str, ports)), str(cameras), "--work", str(args.work), "--mps", args.mps]
    process = subprocess.Popen(
        [sys.executable, "-m", __spec__.name, str(args.clip), *wanted],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class _Child:
    """A daemon in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        found = json.loads(self._line())
        self.up_s, self.lost = found["seconds"], found["lost"]

    @staticmethod
    @contextmanager
    def of(args: argparse.Namespace, ports: Sequence[int], cameras: int, gpu: int) -> Iterator[_Child]:
        with _spawned(args, ports, cameras, gpu) as process:
            yield _Child(process)

    def tell(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def ask(self, line: str) -> dict[str, Any]:
        self.tell(line)
        found: dict[str, Any] = json.loads(self._line())
        return found

    def wait(self) -> None:
        self._process.wait(60)

    def _line(self) -> str:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("= "):
                return line[2:]
        raise SystemExit("a daemon has ended: see its log above")


# --- one daemon -----------------------------------------------------------------------------------------------------


def _serve(args: argparse.Namespace, ports: Sequence[int], cameras: int) -> int:
    begun = monotonic()
    rows = RowLog(paced=True)
    opened = GpuStandIn.opening(args.work)
    with logging(LogConfig(level="warning", format="console")):
        daemon = build(_config(args, ports, cameras), Seams(rows=[rows], open_detector=opened))
        with listening(daemon.endpoint), probing():
            daemon.start()
            try:
                _wait_until_up(daemon, begun)
                _measure(daemon, rows)
            finally:
                daemon.stop()
    return 0


def _config(args: argparse.Namespace, ports: Sequence[int], cameras: int) -> Config:
    urls = tuple(Url(f"tcp://127.0.0.1:{port}") for port in ports)
    load = Load(urls, sources=cameras, paced=True, max_batch=16, mps=args.mps)
    config = config_of(load)
    quick = {name: Secret("200000") for name in ("probesize", "analyzeduration")}
    sources = [
        msgspec.structs.replace(row, kind="live", options=quick) for row in config.sources if isinstance(row, AvConfig)
    ]
    return msgspec.structs.replace(config, sources=sources, monitor=MonitorConfig(interval_s=60))


def _wait_until_up(daemon: Daemon, begun: float) -> None:
    pause = Flag()
    while any(row.published < 5 for row in daemon.ledger.counts().values()) and monotonic() - begun < _UP_S:
        pause.wait(0.1)
    took, counts = round(monotonic() - begun, 2), daemon.ledger.counts().values()
    lost = sum(getattr(row.dropped, cause) for row in counts for cause in CAUSES)
    _write("= " + json.dumps({"seconds": took, "lost": lost}))


def _measure(daemon: Daemon, rows: RowLog) -> None:
    before, since, cpu, host = daemon.ledger.counts(), monotonic_ns(), 0.0, _host_cpu()
    for line in sys.stdin:
        if line.strip() == "stop":
            return
        if line.strip() == "begin":
            rows.clear()
            before, since, cpu, host = daemon.ledger.counts(), monotonic_ns(), _cpu_s(daemon), _host_cpu()
            continue
        after, seconds = daemon.ledger.counts(), (monotonic_ns() - since) / 1e9
        lost = sum(
            getattr(after[id].dropped, cause) - getattr(before[id].dropped, cause) for id in after for cause in CAUSES
        )
        published = sum(after[id].published - before[id].published for id in after)
        used, (busy, whole) = _cpu_s(daemon) - cpu, np.subtract(_host_cpu(), host).tolist()
        Flag().wait(1.2)  # the monitor brings rows once a second
        found = rows.all()
        ms = latencies_ms(found[found["dropped"] == 0], paced=True)
        p50, p99 = np.percentile(ms, [50, 99]) if len(ms) else (0.0, 0.0)
        answer = {"seconds": seconds, "fps": published / seconds, "lost": lost / max(1, lost + published)}
        answer |= {"p50": p50, "p99": p99, "max": float(ms.max(initial=0)), "cpu_ms": used * 1e3 / max(1, published)}
        answer["host"] = busy / max(1, whole)
        _write("= " + json.dumps(answer))


def _host_cpu() -> tuple[int, int]:
    """Ticks of all cores that are busy, and all."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def _cpu_s(daemon: Daemon) -> float:
    found, tick = 0.0, os.sysconf("SC_CLK_TCK")
    for pid in daemon.parts.pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found += (int(fields[11]) + int(fields[12])) / tick
    return found


# --- the stand-in for a model ---------------------------------------------------------------------------------------


class GpuStandIn:
    """A detector without a model: it copies the pictures of a batch, and keeps the GPU busy as an engine would."""

    def __init__(self, options: Options, work: int) -> None:
        self._device, self._work = Device(options.device), work
        self.info = ModelInfo(
            name="stand-in",
            digest="0" * 12,
            precision="none",
            backend="stand-in",
            head="none",
            input_size=(640, 640),
            labels=("any",),
            max_batch=options.max_batch,
            lanes=options.lanes,
            gpu=options.device,
        )

    @staticmethod
    def opening(work: int) -> Any:
        def opened(_: str, options: Options) -> GpuStandIn:
            return GpuStandIn(options, work)

        return opened

    def lane(self) -> GpuStandInLane:
        return GpuStandInLane(self._device, self._work)

    def cutter(self, room: int) -> HostCutter:
        return HostCutter()

    def sample(self, width: int, height: int) -> HostImage:
        return HostImage(np.full((height, width, 3), 114, np.uint8))

    def close(self) -> None:
        self._device.close()


class GpuStandInLane:
    """See `detectors.port.Lane`."""

    def __init__(self, device: Device, work: int) -> None:
        self._device, self._work = device, work
        self._own: tuple[Stream, Event, DeviceBuffer, DeviceBuffer] | None = None
        self._box = Detections(
            np.array([[64, 48, 128, 144]], np.float32), np.ones(1, np.float32), np.zeros(1, np.int32)
        )

    def detect(self, images: Sequence[Image | PreparedImage]) -> tuple[list[Detections], StageTimes]:
        if self._own is None:
            self._device.make_current()
            self._own = Stream(), Event(), DeviceBuffer(self._work), DeviceBuffer(self._work)
        stream, event, source, target = self._own
        begun = monotonic_ns()
        for image in images:
            if isinstance(image, DeviceImage):
                if image.ready:
                    stream.wait(image.ready)
                size = image.pitch * image.height * 3 // 2
                stream.copy(target.pointer, image.luma, min(size, self._work))
        for _ in range(_WORK_COPIES):
            stream.copy(target.pointer, source.pointer, self._work)
        event.record(stream)
        event.synchronize()
        return [self._box for _ in images], StageTimes(0, monotonic_ns() - begun, 0)

    def fetch(self, image: Image) -> Fetch:
        return fetched(image)

    def at(self, size: tuple[int, int]) -> GpuStandInLane:
        return self

    def close(self) -> None:
        own, self._own = self._own, None
        for part in own or ():
            part.close()


if __name__ == "__main__":
    sys.exit(main())
