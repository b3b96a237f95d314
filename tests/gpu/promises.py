"""Service levels of one H200, measured by `lookout bench`: lossless, live, overload, churn; a row for each.

    python -m tests.gpu.promises MODEL.onnx --labels coco --h264 CLIP --hevc CLIP --cache DIR --out DIR [--only NAME]

--camera is a clip without B-frames and with a key frame every other second, like a camera's; --rtsp the URL of a server
that sends it to each client from the beginning, such as tests/support/rtsp_server.py. Reports and logs go to --out.
With cached engines it takes a quarter of an hour. --scale 0.02 reduces sources and times, for a trial on a CPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av

Report = dict[str, Any]
Check = Callable[[Report], Iterator[tuple[bool, str]]]
_FAST = 1.3  # factor of the clip's own rate
_LONG_S = 120.0
_DROPS = 1000
_CHURN = ("tests.gpu.churn",)
_MIN_SOURCES = 6  # churn breaks five and watches one


@dataclass(frozen=True)
class ServiceLevel:
    """One run and its service level.

    Attributes:
        clip: h264, hevc, camera, rtsp, or fast: HEVC at 1.3 times its rate.
        check: yields (met, description) for each condition on the report.
    """

    clip: str
    sources: int
    seconds: float
    check: Check
    options: tuple[str, ...] = ("--paced",)
    command: tuple[str, ...] = ("daemon", "bench", "run", "--repeats", "1")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--h264", type=Path, required=True)
    parser.add_argument("--hevc", type=Path, required=True)
    parser.add_argument("--camera", type=Path)
    parser.add_argument("--rtsp")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--labels")
    parser.add_argument("--only", nargs="+", choices=SERVICE_LEVELS, metavar="NAME")
    parser.add_argument("--scale", type=float, default=1.0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    clips = {"h264": args.h264, "hevc": args.hevc, "fast": _faster(args.hevc, args.out / "fast.mp4")}
    clips |= {name: clip for name, clip in (("camera", args.camera), ("rtsp", args.rtsp)) if clip}
    model = [str(args.model), *(["--labels", args.labels] if args.labels else []), "--cache", str(args.cache)]
    all_met, rows = True, []
    for name in args.only or SERVICE_LEVELS:
        level, path = SERVICE_LEVELS[name], args.out / f"{name}.json"
        if level.clip not in clips:
            continue
        report = _measure(level, clips[level.clip], model, path, args.scale)
        found = [*level.check(report)] if report else [(False, f"failed: see {path.with_suffix('.log')}")]
        all_met &= all(met for met, _ in found)
        summary = "; ".join(f"{text}{'' if met else ' (!)'}" for met, text in found)
        rows.append(f"{name:16} {'met' if all(met for met, _ in found) else 'NOT MET':8} {summary}")
        sys.stdout.write(rows[-1] + "\n")
        sys.stdout.flush()
    sys.stdout.write("\n".join(["", *rows]) + "\n")
    return int(not all_met)


def _measure(level: ServiceLevel, clip: Path | str, model: list[str], path: Path, scale: float) -> Report | None:
    sources, seconds = max(_MIN_SOURCES, round(level.sources * scale)), max(3.0, level.seconds * scale)
    command = [sys.executable, "-m", *level.command, str(clip), "--model", *model]
    command += ["--sources", str(sources), "--seconds", str(seconds), "--json", str(path), *level.options]
    churns = level.command == _CHURN
    if churns:
        command += ["--drops", str(max(10, round(_DROPS * scale)))]
    path.unlink(missing_ok=True)
    with path.with_suffix(".log").open("w") as log:
        code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    if code != 0:
        return None
    found = json.loads(path.read_text())
    return found if churns else {**found["cases"][0]["repeats"][0][0], "limits": found["limits"]}


def _faster(clip: Path, to: Path) -> Path:
    """Copy packets with their times closer together."""
    with av.open(str(clip)) as opened, av.open(str(to), "w") as written:
        source = opened.streams.video[0]
        target = written.add_stream_from_template(source)
        pace = Fraction(_FAST).limit_denominator(100)
        for packet in opened.demux(source):
            if packet.dts is not None:
                packet.stream = target
                packet.time_base = (packet.time_base or Fraction(1, 90_000)) / pace
                written.mux(packet)
    return to


def _lossless(share: float, *, engine: bool) -> Check:
    def check(report: Report) -> Iterator[tuple[bool, str]]:
        limits, fps = report["limits"], report["fps"]
        lowest = min(limits["decode_fps"], limits["engine_fps"]) if engine else limits["decode_fps"]
        yield fps >= share * lowest, f"{fps:.0f} frames/s are {fps / lowest:.3f} of {lowest:.0f}"
        yield report["received_share"] == 1, f"{report['received_share']:.2%} received"

    return check


def _live(report: Report) -> Iterator[tuple[bool, str]]:
    yield from _cameras(report)
    cost = report["usage"]["cpu_ms_per_frame"]
    yield cost <= 0.5, f"CPU {cost:.3f} ms a frame"


def _analytics(report: Report) -> Iterator[tuple[bool, str]]:
    cost, lost = report["usage"]["cpu_ms_per_frame"], report["dropped_share"]
    yield lost == 0, f"{lost:.3%} lost"
    yield report["latency_ms"]["p99"] <= 40, f"due to sent p99 {report['latency_ms']['p99']:.1f} ms"
    yield cost <= 0.4, f"CPU {cost:.3f} ms a frame"


def _cameras(report: Report) -> Iterator[tuple[bool, str]]:
    due, lost = report["latency_ms"], report["dropped_share"]
    received = report["stages_ms"]["due to received"]
    yield lost < 0.001, f"{lost:.3%} lost"
    yield due["p50"] <= 20, f"due to sent p50 {due['p50']:.1f} ms"
    yield due["p99"] <= 40, f"p99 {due['p99']:.1f}"
    yield True, f"worst second {report['worst_second_ms']:.1f}; due to received p99 {received['p99']:.1f}"


def _overload(report: Report) -> Iterator[tuple[bool, str]]:
    lowest, middle, highest = report["source_fps"]
    yield report["latency_ms"]["p99"] <= 120, f"due to sent p99 {report['latency_ms']['p99']:.1f} ms"
    yield report["worst_second_ms"] <= 120, f"worst second {report['worst_second_ms']:.1f}"
    yield report["unaccounted"] == 0, f"{report['unaccounted']} unaccounted of {report['captured']}"
    yield lowest >= 0.95 * middle, f"slowest {lowest / middle - 1:+.1%}"
    yield highest <= 1.05 * middle, f"fastest {highest / middle - 1:+.1%}"
    yield True, f"{report['fps']:.0f} frames/s"


def _churn(report: Report) -> Iterator[tuple[bool, str]]:
    for name, unit in (("gpu_mib", "GPU MiB"), ("rss_mib", "RSS MiB")):
        early, late = report["settled"][name] or 0, report["ended"][name] or 0
        yield late <= 1.01 * early, f"{unit} {early:.1f} to {late:.1f}"
    quiet, churning = report["quiet_p99_ms"], report["churning_p99_ms"]
    yield churning <= 1.1 * quiet, f"the others' p99 {quiet:.2f} to {churning:.2f} ms"
    quiet, churning = report["quiet_fps"], report["churning_fps"]
    yield churning >= 0.99 * quiet, f"their slowest {quiet:.2f} to {churning:.2f} frames/s"


SERVICE_LEVELS = {
    "lossless-h264": ServiceLevel("h264", 28, 10, _lossless(0.95, engine=False), ("--limits",)),
    "lossless-hevc": ServiceLevel("hevc", 28, 10, _lossless(0.90, engine=True), ("--limits",)),
    "live-h264": ServiceLevel("h264", 150, _LONG_S, _live),
    "live-hevc": ServiceLevel("hevc", 240, _LONG_S, _live),
    "analytics-hevc": ServiceLevel("hevc", 240, _LONG_S, _analytics, ("--paced", "--analytics")),
    "rtsp-100": ServiceLevel("rtsp", 100, _LONG_S, _cameras),
    "rtsp-150": ServiceLevel("rtsp", 150, _LONG_S, _cameras),
    "overload-h264": ServiceLevel("h264", 195, 45, _overload, ("--paced", "--admission", "degrade")),
    "overload-hevc": ServiceLevel("fast", 252, 45, _overload, ("--paced", "--admission", "degrade")),
    "overload-camera": ServiceLevel("camera", 195, 45, _overload, ("--paced", "--admission", "degrade")),
    "late-h264": ServiceLevel("h264", 195, 45, _overload),
    "late-hevc": ServiceLevel("fast", 252, 45, _overload),
    "churn": ServiceLevel("h264", 20, 6, _churn, (), _CHURN),
}

if __name__ == "__main__":
    sys.exit(main())
