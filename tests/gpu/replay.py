"""`lookout run` on GPU and CPU over the same lossless replay: equal detections.

    python -m tests.gpu.replay MODEL.onnx CLIP ... --cache DIR --builder-level 1 --frames 60

Of the CPU's boxes with confidence over 0.5, at most one in 200 may lack a GPU box of its class with IoU >= 0.95; those
are printed. In FP16 a few differ: of two boxes of one object with nearly equal confidence NMS keeps the other. With GPU
decoding the limit is one in 25: colours from NV12 differ from FFmpeg's BGR by 0.7 grey levels in the mean, and the same
kernels on a CPU, with FFmpeg's pictures, missed 2.1 to 2.8 in a hundred. Boxes of another frame would miss 28.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from time import monotonic

import av
import numpy as np
import numpy.typing as npt

from detectors.matching import match
from lookout.client import Subscriber
from lookout.messages import Detection, Detections
from tests.support.daemon import Lookout

Found = dict[tuple[str, int], list[Detection]]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("clips", nargs="+", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--builder-level", type=int, default=1)
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--decode", default="auto", choices=["auto", "nvdec", "cpu"])
    parser.add_argument("--max-batch", type=int, default=16)
    parser.add_argument("--sources", type=int, default=8)
    parser.add_argument("--frames", type=int, default=60, help="per clip")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clips = [_shorten(clip, Path(folder) / f"{clip.stem}.mkv", args.frames) for clip in args.clips]
        gpu, speed = _run(args, clips, "trt", Path(folder))
        cpu, _ = _run(args, clips, "cpu", Path(folder))
    assert gpu.keys() == cpu.keys(), f"{len(gpu)} and {len(cpu)} frames"
    wanted = 0
    missed: list[tuple[tuple[str, int], Detection]] = []
    for key, boxes in sorted(cpu.items()):
        strong = [box for box in boxes if box.confidence > 0.5]
        wanted += len(strong)
        mine, theirs = _arrays(strong), _arrays(gpu[key])
        paired = {pair[0] for pair in match(*mine, *theirs, 0.95)}
        missed += [(key, box) for number, box in enumerate(strong) if number not in paired]
    agreed, limit = wanted - len(missed), 1 / 200 if args.decode == "cpu" else 1 / 25
    sys.stdout.write(
        f"{args.model.stem} {args.precision}: {len(cpu)} frames of {args.sources} sources by both; of {wanted} "
        f"boxes over 0.5 on the CPU, {agreed} on the GPU with IoU >= 0.95; GPU {speed:.0f} frames/s\n"
    )
    for key, box in missed[:20]:
        sys.stdout.write(f"  without: {key} {box.label} {box.confidence} {box.box}\n")
    return int(agreed < wanted * (1 - limit))


def _run(args: argparse.Namespace, clips: list[Path], backend: str, folder: Path) -> tuple[Found, float]:
    """All messages of one lossless run, and frames per second between the first and the last."""
    sources = [
        {
            "id": f"clip-{number}",
            "type": "av",
            "url": str(clips[number % len(clips)]),
            "pace": "fast",
            "decode": args.decode if backend == "trt" else "cpu",
        }
        for number in range(args.sources)
    ]
    model = {"path": str(args.model.resolve()), "backend": backend, "labels": "coco", "max_batch": args.max_batch}
    if backend == "trt":
        model |= {"precision": args.precision, "builder_level": args.builder_level, "cache": str(args.cache.resolve())}
    config: dict[str, object] = {
        "model": model,
        "sources": sources,
        "lanes": 2 if backend == "trt" else 1,
        "board": {"mode": "lossless"},
        "publisher": {"wait_for_subscriber_s": 600, "high_water_mark": 100_000},
    }
    found: Found = {}
    times = []
    with Lookout(folder, config) as lookout, Subscriber(lookout.endpoint, high_water_mark=100_000) as subscriber:
        until = monotonic() + 500
        while monotonic() < until:
            message = subscriber.receive(1.0)
            if isinstance(message, Detections):
                assert message.model.backend == backend
                found[message.source, message.seq] = message.detections
                times.append(monotonic())
            elif lookout.process.poll() is not None:
                break
        assert subscriber.lost == {}
        assert lookout.process.wait(10) == 0, lookout.log()
    return found, len(times) / max(times[-1] - times[0], 1e-9)


def _arrays(boxes: list[Detection]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    xyxy = np.array([box.box for box in boxes], dtype=np.float32).reshape(-1, 4)
    return xyxy, np.array([box.class_id for box in boxes], dtype=np.int32)


def _shorten(clip: Path, target: Path, frames: int) -> Path:
    """Copy the first packets of a clip."""
    with av.open(str(clip)) as source, av.open(str(target), "w") as short:
        video = source.streams.video[0]
        copy = short.add_stream_from_template(video)
        for number, packet in enumerate(source.demux(video)):
            if number == frames or packet.dts is None:
                break
            packet.stream = copy
            short.mux(packet)
    return target


if __name__ == "__main__":
    sys.exit(main())
