"""A model swap under load: no frame lost, no wrong boxes, and limited latency.

    python -m tests.gpu.swap MODEL.onnx OTHER.onnx CLIP --labels coco --cache DIR [--sources 40] [--out rows.json]

The first swap builds the new engine unless cached. Conditions: no lost frame, each frame detected by one model with
that model's usual boxes, and a p99 in the second of the switch of at most 1.5 times that of the quiet seconds before.
A table comes last.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise
from pathlib import Path
from time import monotonic

import av
import numpy as np
import yaml

from lookout.client import Subscriber
from lookout.messages import Detections
from tests.support.daemon import Lookout

_QUIET_S = 10.0
_SETTLED_S = 3.0
_SWAP_TIMEOUT_S = 400.0  # includes building an engine
_RATIO = 1.5


@dataclass(frozen=True)
class Row:
    """One message.

    Attributes:
        at: receive time, s.
        late: captured to sent, ms.
        boxes: a hash of the boxes.
    """

    at: float
    source: str
    seq: int
    model: str
    late: float
    boxes: int


@dataclass(frozen=True)
class Swap:
    """Times of the request, of the new model's first message, and of the end of observation; s."""

    asked: float
    switched: float
    settled: float


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", type=Path, nargs=2)
    parser.add_argument("clip", type=Path)
    parser.add_argument("--labels")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--backend", default="trt")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--builder-level", type=int, default=1)
    parser.add_argument("--max-batch", type=int, default=16)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--sources", type=int, default=40)
    parser.add_argument("--swaps", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write all messages and the log here")
    args = parser.parse_args()
    with av.open(str(args.clip)) as clip:
        frames = sum(packet.pts is not None for packet in clip.demux(video=0))
    with tempfile.TemporaryDirectory() as folder:
        rows, swaps, log = _measure(args, Path(folder))
    if args.out:
        whole = {"rows": [astuple(row) for row in rows], "swaps": [astuple(swap) for swap in swaps], "log": log}
        args.out.write_text(json.dumps(whole))
    wrong, backwards = _wrong(rows, frames), _backwards(rows, len(swaps))
    kept = wrong == backwards == 0
    lines = [f"{len(rows)} messages: {wrong} with boxes that their model finds at no other time in this frame"]
    lines.append(f"{backwards} sources that went from model to model more than {len(swaps)} times")
    for number, swap in enumerate(swaps):
        held, line = _evaluate(rows, swap)
        kept &= held
        lines.append(f"swap {number + 1}: {line}")
    sys.stdout.write("\n".join([*lines, "kept" if kept else "NOT KEPT"]) + "\n")
    return int(not kept)


def _measure(args: argparse.Namespace, folder: Path) -> tuple[list[Row], list[Swap], str]:
    clip = {"type": "av", "url": str(args.clip.resolve()), "loop": True}
    model: dict[str, object] = {"backend": args.backend, "labels": args.labels, "max_batch": args.max_batch}
    model |= {"precision": args.precision, "builder_level": args.builder_level} if args.backend == "trt" else {}
    paths = [str(path.resolve()) for path in args.models]
    config: dict[str, object] = {
        "model": {**model, "path": paths[0], "cache": str(args.cache.resolve())},
        "sources": [{"id": f"camera-{number}", **clip} for number in range(args.sources)],
        "lanes": args.lanes,
    }
    rows: list[Row] = []
    swaps: list[Swap] = []
    with Lookout(folder, config) as lookout, lookout.subscribe("detections") as subscriber:
        while len({row.source for row in rows}) < args.sources:
            _receive(subscriber, rows, 1.0)
        _receive(subscriber, rows, _SETTLED_S)
        for number in range(args.swaps):
            _receive(subscriber, rows, _QUIET_S)
            whole = yaml.safe_load(lookout.config.read_text())
            whole["model"]["path"] = paths[(number + 1) % 2]
            lookout.config.write_text(yaml.safe_dump(whole))
            asked, before = monotonic(), rows[-1].model
            lookout.process.send_signal(signal.SIGHUP)
            while rows[-1].model == before:
                if monotonic() - asked > _SWAP_TIMEOUT_S:
                    raise SystemExit(f"no other model after {_SWAP_TIMEOUT_S:g} s: {lookout.log()[-2000:]}")
                _receive(subscriber, rows, 0.01)
            switched = rows[-1].at
            _receive(subscriber, rows, _SETTLED_S)
            swaps.append(Swap(asked, switched, rows[-1].at))
        lookout.stop()
        return rows, swaps, lookout.log()


def _receive(subscriber: Subscriber, rows: list[Row], seconds: float) -> None:
    until = monotonic() + seconds
    while (left := until - monotonic()) > 0:
        message = subscriber.receive(left)
        if isinstance(message, Detections):
            boxes = hash(tuple(message.detections))
            model, late = message.model.digest, message.latency.total / 1e6
            rows.append(Row(monotonic(), message.source, message.seq, model, late, boxes))


def _wrong(rows: Sequence[Row], frames: int) -> int:
    """Number of messages with boxes that differ from most messages of the same frame and model."""
    seen: dict[tuple[int, str], list[int]] = defaultdict(list)
    for row in rows:
        seen[row.seq % frames, row.model].append(row.boxes)
    return sum(len(boxes) - max(boxes.count(one) for one in set(boxes)) for boxes in seen.values())


def _backwards(rows: Sequence[Row], swaps: int) -> int:
    models: dict[str, list[str]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.seq):
        models[row.source].append(row.model)
    return sum(sum(a != b for a, b in pairwise(row)) != swaps for row in models.values())


def _evaluate(rows: Sequence[Row], swap: Swap) -> tuple[bool, str]:
    quiet = [row for row in rows if swap.asked - _QUIET_S <= row.at < swap.asked]
    during = [row for row in rows if swap.asked <= row.at < swap.settled]
    switch = [row for row in rows if abs(row.at - swap.switched) <= 0.5]
    usual, worst = _p99(quiet), _p99(switch)
    slots = range(int(swap.switched - swap.asked))
    seconds = [_p99([row for row in during if slot <= row.at - swap.asked < slot + 1]) for slot in slots]
    lost = _lost(during)
    summary = f"asked to switched {swap.switched - swap.asked:.1f} s; {lost} of {len(during) + lost} frames lost"
    summary += (
        f" ({_lost(quiet)} in the {_QUIET_S:g} s before); p99 {usual:.1f} ms before, {max(seconds, default=0):.1f} in"
    )
    summary += f" the worst second of opening, {worst:.1f} ({worst / usual:.2f} times) in the second of the switch"
    return lost == 0 and worst <= _RATIO * usual, summary


def _p99(rows: Sequence[Row]) -> float:
    return float(np.percentile([row.late for row in rows], 99)) if rows else 0.0


def _lost(rows: Sequence[Row]) -> int:
    """Gaps between the first and last message of each source."""
    seen: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        seen[row.source].append(row.seq)
    return sum(max(row) - min(row) + 1 - len(row) for row in seen.values())


if __name__ == "__main__":
    sys.exit(main())
