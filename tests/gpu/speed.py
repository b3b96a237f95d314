"""Speed of lanes compared with the bare engine, their memory, and its growth.

    python -m tests.gpu.speed MODEL.onnx --cache DIR --builder-level 3 --max-batch 32 [--growth 200000]

Bare is the replayed CUDA graph of the engine, in the same run. Frames are 1080p. Tables come last.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import psutil
import pynvml
import structlog

from daemon.sources.scene import Scene
from detectors.cuda import DeviceBuffer, PinnedBuffer, Stream
from detectors.port import DeviceImage, HostImage, Image, Options, PostprocessParams
from detectors.trt.detector import TrtDetector
from detectors.trt.lane import TrtLane
from detectors.trt.memory_plan import batch_sizes
from tests.support.kernels import nv12_of

_MIB = 1 << 20


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--builder-level", type=int, default=1)
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--seconds", type=float, default=2.0, help="per table cell")
    parser.add_argument("--growth", type=int, default=0, help="batches of the growth test")
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(20))
    pynvml.nvmlInit()
    before = _used()
    options = Options(
        args.model, "auto", "coco" if "demo" not in args.model.name else None, wanted=PostprocessParams(0.25)
    )
    options = replace(
        options, max_batch=args.max_batch, precision=args.precision, builder_level=args.builder_level, lanes=4
    )
    options = replace(options, cache=args.cache)
    lines: list[str] = []
    begun = perf_counter()
    with closing(TrtDetector(options)) as detector, ExitStack() as stack:
        lines.append(f"opened in {perf_counter() - begun:.2f} s: {dict(detector.info.startup)}")
        opened = _used()
        lanes = []
        for number in range(options.lanes):
            begun = perf_counter()
            lanes.append(stack.enter_context(closing(detector.lane())))
            lines.append(f"lane {number} in {perf_counter() - begun:.2f} s")
        images = _device_images(args.max_batch, stack)
        lines += _memory(detector, before, opened, _used() - sum(3110400 for _ in images))
        sys.stdout.write("\n".join(lines) + "\n")
        lines = [""]
        lines += _latency(lanes[0], images)
        lines += _table(lanes, images, args)
        lines += _host(lanes, args)
        if args.growth:
            lines += _growth(lanes, images, args.growth)
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _device_images(count: int, stack: ExitStack) -> list[DeviceImage]:
    """Synthetic streets as NV12, in separate memory."""
    stream = Stream()
    stack.callback(stream.close)
    images = []
    for seed in range(count):
        nv12 = nv12_of(Scene(1920, 1080, seed=seed % 4).draw(seed), bt709=True, full_range=False)
        buffer = DeviceBuffer(nv12.luma.nbytes + nv12.chroma.nbytes)
        stack.callback(buffer.close)
        buffer.upload(nv12.luma, stream)
        buffer.upload(nv12.chroma, stream, nv12.luma.nbytes)
        images.append(DeviceImage(buffer.pointer, buffer.pointer + nv12.luma.nbytes, 1920, 1920, 1080))
        stream.synchronize()
    return images


def _memory(detector: TrtDetector, before: int, opened: int, now: int) -> list[str]:
    plan = dict(detector.info.memory)
    planned, used = sum(plan.values()) / _MIB, (now - before) / _MIB
    lines = [f"memory: planned {planned:.0f} MiB, NVML says {used:.0f} MiB: plan is {planned / used:.3f} of it"]
    lines.append(f"  without lanes NVML says {(opened - before) / _MIB:.0f} MiB")
    return lines + [f"  {name}: {size / _MIB:.0f} MiB" for name, size in plan.items()]


def _latency(lane: TrtLane, images: Sequence[DeviceImage]) -> list[str]:
    """Latency of one picture, from receiving it to its boxes."""
    host = HostImage(Scene(1920, 1080, seed=1).draw(7))
    ways: dict[str, Callable[[], object]] = {
        "bare engine, graph launch and wait": lambda: lane.replay(1, 1),
        "NV12 on the device": lambda: lane.detect(images[:1]),
        "BGR in host memory": lambda: lane.detect([host]),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(600):
        for name, way in ways.items():
            begun = perf_counter()
            way()
            if turn >= 100:
                times[name].append((perf_counter() - begun) * 1e3)
    bare = median(times["bare engine, graph launch and wait"])
    lines = ["", "latency of one 1080p frame, ms                 p50      p99   over bare"]
    for name, values in times.items():
        p99 = float(np.percentile(values, 99))
        lines.append(f"{name:42} {median(values):8.3f} {p99:8.3f} {median(values) - bare:8.3f}")
    return lines


def _table(lanes: Sequence[TrtLane], images: Sequence[DeviceImage], args: argparse.Namespace) -> list[str]:
    """Frames per second by lanes and batch, with NV12 frames on the device."""
    sizes = batch_sizes(args.max_batch)
    lines = ["", "NV12 on the device, frames/s; in brackets the share of the bare engine, one stream, same batch"]
    bare = {}
    for size in sizes:
        lanes[0].replay(size, 10)
        times = max(20, round(0.7 * args.seconds / lanes[0].replay(size, 10) * 10))
        bare[size] = size * times / lanes[0].replay(size, times)
    lines.append("batch    " + "".join(f"{size:>16}" for size in sizes))
    lines.append("bare     " + "".join(f"{bare[size]:>16.0f}" for size in sizes))
    for count in range(1, len(lanes) + 1):
        cells = []
        for size in sizes:
            speed = _throughput(lanes[:count], images[:size], args.seconds)
            cells.append(f"{speed:>8.0f} ({speed / bare[size]:.3f})")
        lines.append(f"{count} lanes  " + "".join(f"{cell:>16}" for cell in cells))
    return lines


def _host(lanes: Sequence[TrtLane], args: argparse.Namespace) -> list[str]:
    """The same with BGR frames in host memory, and its limits."""
    images = [HostImage(Scene(1920, 1080, seed=seed % 4).draw(seed)) for seed in range(args.max_batch)]
    lines = ["", f"BGR in host memory, batch {args.max_batch}"]
    frame = images[0].bgr.nbytes
    with ExitStack() as stack:
        stream = Stream()
        stack.callback(stream.close)
        pinned, device = PinnedBuffer(frame), DeviceBuffer(frame)
        stack.callback(pinned.close)
        stack.callback(device.close)
        view = pinned.view((frame,), np.uint8)
        flat = [image.bgr.reshape(-1) for image in images]
        begun = perf_counter()
        for turn in range(100):
            np.copyto(view, flat[turn % len(flat)])
        copies = 100 / (perf_counter() - begun)
        begun = perf_counter()
        for _ in range(200):
            device.mirror(pinned, 0, frame, stream)
        stream.synchronize()
        bus = 200 / (perf_counter() - begun)
    lines.append(f"limits: the bus {bus:.0f} frames/s ({bus * frame / 1e9:.1f} GB/s), one thread's copies {copies:.0f}")
    for count in range(1, len(lanes) + 1):
        speed = _throughput(lanes[:count], images, args.seconds)
        lines.append(f"{count} lanes: {speed:.0f} frames/s, {speed / bus:.3f} of the bus")
    return lines


def _throughput(lanes: Sequence[TrtLane], images: Sequence[Image], seconds: float) -> float:
    """Frames per second of lanes with unlimited input."""
    done = [0] * len(lanes)
    stop = threading.Event()

    def work(number: int) -> None:
        lanes[number]._loaded.device.make_current()
        while not stop.is_set():
            lanes[number].detect(images)
            done[number] += len(images)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(lanes))]
    for thread in threads:
        thread.start()
    stop.wait(seconds * 0.3)
    first, begun = sum(done), perf_counter()
    stop.wait(seconds * 0.7)
    speed = (sum(done) - first) / (perf_counter() - begun)
    stop.set()
    for thread in threads:
        thread.join()
    return speed


def _growth(lanes: Sequence[TrtLane], images: Sequence[DeviceImage], batches: int) -> list[str]:
    """Memory after the first twentieth of the batches, and after the last."""
    process = psutil.Process()
    marks: list[tuple[int, int]] = []
    turns = batches // len(lanes)

    def work(lane: TrtLane, turn: int) -> None:
        lane._loaded.device.make_current()
        for number in range(turn):
            lane.detect(images[: 1 + number % 4])

    for turn in (turns // 20, turns - turns // 20):
        threads = [threading.Thread(target=work, args=(lane, turn)) for lane in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        marks.append((_used(), process.memory_info().rss))
    (gpu, rss), (gpu_after, rss_after) = marks
    assert gpu_after <= gpu
    assert rss_after <= rss * 1.02
    return ["", f"{batches} batches over {len(lanes)} lanes: NVML {gpu / _MIB:.0f} -> {gpu_after / _MIB:.0f} MiB, "
            f"RSS {rss / _MIB:.1f} -> {rss_after / _MIB:.1f} MiB"]  # fmt: skip


def _used() -> int:
    """Used GPU memory, of all processes."""
    return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used)


if __name__ == "__main__":
    sys.exit(main())
