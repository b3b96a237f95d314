"""What capture processes are forked from is killed, while they decode on the GPU: their sources come back in others.

    python -m tests.gpu.deaths CLIP --cache DIR [--backend cpu]

Says what they take, and how long their sources were away.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import psutil

from daemon.capture.processes.run import PROGRAM
from lookout.messages import Message
from tests.support.daemon import DEMO_MODEL, Lookout, all_of, is_state, receive_until

_SOURCES, _TURNS = 4, 2


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("clip", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--backend", default="trt", choices=["trt", "cpu"], help="cpu: for a trial of the command")
    args = parser.parse_args()
    model = {"path": str(DEMO_MODEL), "backend": args.backend, "builder_level": 0, "max_batch": 4}
    sources = [
        {"id": f"s{n}", "type": "av", "url": str(args.clip.resolve()), "loop": True}
        | ({"decode": "nvdec"} if args.backend == "trt" else {})
        for n in range(_SOURCES)
    ]
    config: dict[str, object] = {
        "model": model | {"cache": str(args.cache.resolve())},
        "capture_processes": 2,
        "sources": sources,
    }
    with tempfile.TemporaryDirectory() as folder, Lookout(Path(folder), config) as lookout:
        with lookout.subscribe("status") as subscriber:
            receive_until(subscriber, _all_are("up"), 300)
            for _ in range(_TURNS):
                captures = lookout.children(PROGRAM)
                template = psutil.Process(captures[0].pid).parent()
                assert template
                used = [row.memory_full_info() for row in captures]
                sizes = ", ".join(f"{row.rss >> 20} MiB, {row.uss >> 20} of its own" for row in used)
                began = monotonic()
                template.kill()
                for state in ("down", "up"):
                    receive_until(subscriber, _all_are(state))
                sys.stdout.write(f"processes of {sizes}: back after {monotonic() - began:.1f} s\n")
        code = lookout.stop()
        traced = "Traceback" in lookout.log()
    sys.stdout.write(f"{'NOT MET' if code or traced else 'met'}: exit code {code}, traceback: {traced}\n")
    return int(bool(code or traced))


def _all_are(state: str) -> Callable[[Message], bool]:
    return all_of(*(is_state(f"s{n}", state) for n in range(_SOURCES)))


if __name__ == "__main__":
    sys.exit(main())
