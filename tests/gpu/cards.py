"""All cards of a host at once: what each can alone and together, and what a start or a storm does to one that runs.

    python -m tests.gpu.cards --model MODEL.onnx --labels coco --hevc CLIP --camera CLIP --cache DIR --out DIR
    python -m tests.gpu.cards ... --gpus 0 1 --only starts beside

--camera is a clip without B-frames and with a key picture a second. Each part is a command of its own, whose log and
figures go to --out; a table with the verdicts comes last. Parts:

    alone, together   28 HEVC recordings on each card, every frame; one card after the other, then all
    live              240 recordings at their own pace on each card, with tracks and rules, all cards at once
    starts            240 cameras on each card, all cards at once: seconds until all give pictures
    beside            240 cameras on the first card, while 120 start on the last one
    storm             the same, while 30 cameras of another daemon break off every other second

On one card the last three are of that card, and `beside` and `storm` have half as many cameras: its decoder has no room
for more pictures. `starts`, `beside` and `storm` need no model. --dry tries the command
without a GPU: recordings and models by the CPU, cameras over stand-ins of the driver, all of it small.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gpu.several import run_on
from tests.support.driver import built

_START_S = {1: 12.0, 2: 20.0, 4: 40.0}  # for 240 cameras on each of so many cards
_LOST, _P99_TIMES, _TOGETHER = 0.001, 1.5, 0.98
_PARTS = ("alone", "together", "live", "starts", "beside", "storm")

Row = tuple[bool | None, str]
"""Whether a promise is kept, None where there is none, and what was found."""


@dataclass(frozen=True)
class Sizes:
    """How many sources, and seconds."""

    recordings: int = 28
    live: int = 240
    more: int = 120
    storm: int = 30
    seconds: float = 8.0
    live_s: float = 15.0
    work: int = 64_000_000


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path)
    parser.add_argument("--labels")
    parser.add_argument("--hevc", type=Path)
    parser.add_argument("--camera", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gpus", type=int, nargs="+", help="default: all")
    parser.add_argument("--only", nargs="+", choices=_PARTS, default=_PARTS)
    parser.add_argument("--builder-level", default="1")
    parser.add_argument("--dry", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        if args.dry:
            host = _StandIns(Path(folder)).environment
            cards = Cards(args, args.gpus or [0, 1], host, Sizes(2, 2, 1, 1, 1.0, 1.0, 1_000_000))
        else:
            cards = Cards(args, args.gpus or _all_gpus(), os.environ, Sizes())
        rows = [(name, *row) for name in args.only for row in cards.measure(name)]
    sys.stdout.write(f"\n{len(cards.gpus)} cards: {cards.gpus}\n")
    for name, met, found in rows:
        verdict = "" if args.dry or met is None else "met" if met else "NOT MET"
        sys.stdout.write(f"{name:10} {verdict:8} {found}\n")
    return int(not args.dry and any(met is False for _, met, _ in rows))


class Cards:
    """The parts, on some cards of this host."""

    def __init__(self, args: argparse.Namespace, gpus: list[int], host: Mapping[str, str], sizes: Sizes) -> None:
        self.gpus, self._args, self._host, self._sizes = gpus, args, host, sizes
        self._alone: dict[int, float] = {}  # frames/s of each card

    def measure(self, name: str) -> list[Row]:
        """The rows of a part; one that fails has a row that says so."""
        parts: dict[str, Callable[[], Iterator[Row]]] = {
            "alone": self._lossless_alone,
            "together": self._lossless_together,
            "live": self._live,
            "starts": self._starts,
            "beside": self._beside,
            "storm": self._storm,
        }
        sys.stdout.write(f"--- {name}\n")
        sys.stdout.flush()
        try:
            return [*parts[name]()]
        except (SystemExit, OSError, KeyError) as error:
            return [(False, f"failed: {error}; see the logs in {self._args.out}")]

    # --- recordings, with a model ------------------------------------------------------------------------------------

    def _lossless_alone(self) -> Iterator[Row]:
        for gpu in self.gpus:
            (found,) = self._bench([gpu], f"alone-{gpu}", self._sizes.recordings, self._sizes.seconds)
            self._alone[gpu] = found["fps"]
            yield None, f"card {gpu}: {found['fps']:.0f} frames/s; {_decoders(found)}"

    def _lossless_together(self) -> Iterator[Row]:
        found = self._bench(self.gpus, "together", self._sizes.recordings, self._sizes.seconds)
        rate, whole = sum(row["fps"] for row in found), sum(self._alone.get(gpu, 0.0) for gpu in self.gpus)
        ratio = f", {rate / whole:.3f} of {whole:.0f} alone" if whole else "; run it with `alone` for the ratio"
        yield rate >= _TOGETHER * whole if whole else None, f"{rate:.0f} frames/s{ratio}"
        yield all(row["received_share"] == 1 for row in found), "every frame received"

    def _live(self) -> Iterator[Row]:
        more = "--paced", "--analytics", "--lanes", "3"
        found = self._bench(self.gpus, "live", self._sizes.live, self._sizes.live_s, *more)
        for gpu, row in zip(self.gpus, found):
            lost, p99, cost = row["dropped_share"], row["latency_ms"]["p99"], row["usage"]["cpu_ms_per_frame"]
            said = (
                f"card {gpu}: {row['fps']:.0f} frames/s, {lost:.3%} lost, p99 {p99:.1f} ms, CPU {cost:.3f} ms a frame"
            )
            yield lost <= _LOST, said

    def _bench(self, gpus: list[int], name: str, sources: int, seconds: float, *more: str) -> list[dict[str, Any]]:
        args = self._args
        if not (args.hevc and (args.model or args.dry)):
            raise SystemExit("--model and --hevc are needed")
        command = [sys.executable, "-m", "daemon", "bench", "run", str(args.hevc), "--repeats", "1"]
        command += ["--sources", str(sources), "--seconds", str(seconds), "--cache", str(args.cache), *more]
        command += ["--model", str(args.model)] if args.model else []  # the demo model
        command += ["--labels", args.labels] if args.labels else []
        kind = ["--backend", "cpu", "--warm-up", "1"] if args.dry else ["--builder-level", args.builder_level]
        return run_on([*command, *kind], gpus, args.out, name)

    # --- cameras, without a model ------------------------------------------------------------------------------------

    def _starts(self) -> Iterator[Row]:
        found = self._cameras("starts", self._sizes.live, "--starts", "--gpus", *map(str, self.gpus))
        seconds = max(row["up_s"] for row in found.values())
        lost = sum(row["lost_frames"] for row in found.values())
        limit = _START_S.get(len(self.gpus))
        said = f"{self._sizes.live} cameras a card are up after {seconds:.1f} s; {lost} pictures were too early"
        yield None if limit is None else seconds <= limit, said + (f" (limit {limit:g} s)" if limit else "")

    def _beside(self) -> Iterator[Row]:
        cameras, more = self._fitting(self._sizes.live), self._fitting(self._sizes.more)
        found = self._cameras("beside", cameras, *self._pair, "--turns", "1", "--more", str(more))
        yield from _compared(found, "another starts, turn 1", f"{more} cameras start beside {cameras}")

    def _storm(self) -> Iterator[Row]:
        cameras, storm = self._fitting(self._sizes.live), str(self._sizes.storm)
        found = self._cameras("storm", cameras, *self._pair, "--turns", "0", "--storm", storm)
        said = f"{storm} cameras connect again and again beside {cameras}"
        yield from _compared(found, f"{storm} connect again and again", said)

    def _fitting(self, cameras: int) -> int:
        """So many that one card decodes those of both daemons, if there is only one."""
        return cameras if len(self.gpus) > 1 else -(-cameras // 2)

    @property
    def _pair(self) -> tuple[str, ...]:
        """On the first card, and on the last."""
        return "--gpus", str(self.gpus[0]), str(self.gpus[-1])

    def _cameras(self, name: str, cameras: int, *more: str) -> dict[str, dict[str, Any]]:
        sizes, file = self._sizes, self._args.out / f"{name}.json"
        file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.gpu.beside", str(self._args.camera), "--cameras", str(cameras)]
        command += ["--seconds", str(sizes.seconds), "--work", str(sizes.work), "--json", str(file), *more]
        command += ["--mps", "off"] if self._args.dry else []
        with file.with_suffix(".log").open("w") as log:
            done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=self._host, check=False)
        if done.returncode:
            raise SystemExit(f"exit code {done.returncode}")
        found: dict[str, dict[str, Any]] = json.loads(file.read_text())
        return found


def _compared(found: dict[str, dict[str, Any]], name: str, what: str) -> Iterator[Row]:
    alone, beside = found["alone"], found[name]
    times = beside["p99"] / alone["p99"] if alone["p99"] else 0.0
    said = f"{what}: {beside['lost']:.3%} lost (alone {alone['lost']:.3%}), p99 {beside['p99']:.1f} ms, "
    yield beside["lost"] <= _LOST and times < _P99_TIMES, f"{said}{times:.2f} times that alone"


def _decoders(found: dict[str, Any]) -> str:
    return ", ".join(f"{count} by {name}" for name, count in found["decoders"].items())


def _all_gpus() -> list[int]:
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    found = [*range(sum(line.startswith("GPU ") for line in done.stdout.splitlines()))]
    if not found:
        raise SystemExit("nvidia-smi finds no GPU; --dry tries the command without one")
    return found


class _StandIns:
    """A host with two GPUs, whose driver decodes nothing."""

    def __init__(self, folder: Path) -> None:
        more = {"LD_LIBRARY_PATH": str(built(folder, "cuda", "nvcuvid")), "LOOKOUT_HOST_FOLDER": str(folder)}
        self.environment = {**os.environ, **more, "LOOKOUT_TEST_GPUS": "2"}


if __name__ == "__main__":
    sys.exit(main())
