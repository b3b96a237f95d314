"""Whether `admission: degrade` learns the decoder's rate under overload, from different initial estimates.

    python -m tests.gpu.learning MODEL.onnx CLIP --labels coco --cache DIR --estimates 1 0.75 1.3 --sources 195

Estimates are factors of the known rate; 1 must stay. Prints a line per report of ten seconds, and the log lines about
learning.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic

import yaml

from lookout.client import Subscriber
from lookout.messages import Metrics, SourceMetrics
from tests.support.ports import free_port


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("clip", type=Path)
    parser.add_argument("--labels")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--sources", type=int, default=195)
    parser.add_argument("--estimates", type=float, nargs="+", default=[1.0])
    parser.add_argument("--seconds", type=float, default=70)
    parser.add_argument("--inside", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        return _inside(args.inside, args.model)
    for estimate in args.estimates:
        with tempfile.TemporaryDirectory() as folder:
            _measure(args, estimate, Path(folder))
    return 0


def _measure(args: argparse.Namespace, estimate: float, folder: Path) -> None:
    endpoint, config, log = f"tcp://127.0.0.1:{free_port()}", folder / "config.yaml", folder / "log.jsonl"
    config.write_text(yaml.safe_dump(_config(args, endpoint)))
    command = [sys.executable, "-m", "tests.gpu.learning", str(config), str(args.clip), "--inside", str(estimate)]
    sys.stdout.write(f"{args.sources} sources, decoder estimated at {estimate:g} times its known rate\n")
    until, output = monotonic() + args.seconds, 0
    with log.open("w") as file, Subscriber(endpoint, kinds=["metrics"]) as subscriber:
        process = subprocess.Popen(command, stderr=file, env={**os.environ, "OMP_NUM_THREADS": "1"})
        before: Metrics | None = None
        try:
            while monotonic() < until and process.poll() is None:
                message = subscriber.receive(0.5)
                events = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
                for event in events[output:]:
                    if "estimated" in event["event"] or event["level"] in ("error", "critical"):
                        sys.stdout.write(f"  {event}\n")
                output = len(events)
                if isinstance(message, Metrics):
                    sys.stdout.write(f"  {_line(before, message)}\n")
                    before = message
                sys.stdout.flush()
        finally:
            process.terminate()
            process.wait(20)


def _config(args: argparse.Namespace, endpoint: str) -> dict[str, object]:
    model = {"path": str(args.model.resolve()), "labels": args.labels, "backend": args.backend}
    model |= {"max_batch": args.max_batch, "precision": "fp16"} if args.backend != "fake" else {}
    model |= {"cache": str(args.cache.resolve())} if args.cache else {}
    clip = {"type": "av", "url": str(args.clip.resolve()), "loop": True}
    return {
        "model": model,
        "lanes": args.lanes,
        "sources": [{"id": f"camera-{number}", **clip} for number in range(args.sources)],
        "admission": "degrade",
        "publisher": {"endpoint": endpoint},
        "log": {"format": "json"},
    }


def _line(before: Metrics | None, now: Metrics) -> str:
    rows = [row for row in now.sources.values() if row.published]
    rates = sorted(row.published_fps for row in rows) or [0.0]
    sent = (now.latency or {}).get("total")
    late, captured = (
        sum(count(row) for row in now.sources.values())
        - sum(count(row) for row in (before.sources if before else {}).values())
        for count in (_late, _captured)
    )
    decoder = now.gpus[0].decoder_utilisation if now.gpus else None
    return (
        f"{now.uptime_s:4.0f} s: {now.fps:5.0f} frames/s of {captured / now.interval_s:5.0f}, late "
        f"{late / max(1, captured):.1%}, sources {rates[0]:.1f} {rates[len(rates) // 2]:.1f} {rates[-1]:.1f}, captured "
        f"to sent p99 {sent.p99 / 1e6 if sent else 0:.0f} ms, decoder {decoder} %"
    )


def _late(row: SourceMetrics) -> int:
    return row.dropped.late


def _captured(row: SourceMetrics) -> int:
    return row.captured


def _inside(estimate: float, config: Path) -> int:
    """`lookout run` with other figures of the decoder."""
    from daemon.cli import main as lookout
    from daemon.sources.nvdec import costs as rates

    for codec in rates._PIXELS_PER_S:
        rates._PIXELS_PER_S[codec] *= estimate
    sys.argv = ["lookout", "run", "-c", str(config)]
    lookout()
    return 0


if __name__ == "__main__":
    sys.exit(main())
