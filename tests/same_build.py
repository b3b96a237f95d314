"""`python -m tests.same_build`: how often `lookout bench compare` calls two runs of the same build the same.

Reports are made one after the other, each of five repeats, and each is compared with the one before. The machine may be
busy with other things: that is what `compare` has to bear.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.table import Table

from daemon.bench.compare import Change, compare_reports
from daemon.bench.result import Report, read
from tests.support import clips
from tests.support.daemon import ROOT


def _report(clip: Path, folder: Path, pace: str) -> Report:
    """Of a process of its own, as a user's is."""
    out = folder / "run.json"
    command = [sys.executable, "-m", "daemon", "bench", "run", str(clip), "--sources", "2", "--seconds", "1.5", pace]
    command += ["--backend", "cpu", "--lanes", "1", "--max-batch", "4", "--repeats", "5", "--json", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return read(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--paced", action="store_true", help="Then latencies are compared, too.")
    args = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        clip = clips.pattern(Path(folder) / "clip.mkv", seconds=3)
        reports: list[Report] = []
        for number in range(args.tries + 1):
            reports.append(_report(clip, Path(folder), "--paced" if args.paced else "--lossless"))
            console.print(f"report {number + 1} of {args.tries + 1}: {reports[-1].cases[0].value('fps'):.1f} frames/s")
    rows: list[list[Change]] = [compare_reports(old, new) for old, new in pairwise(reports)]
    table = Table("", *("better", "worse", "unknown", "same"))
    for name in [change.metric for change in rows[0]]:
        counts = Counter(change.result for row in rows for change in row if change.metric == name)
        table.add_row(name, *(str(counts[verdict]) for verdict in ("better", "worse", "unknown", "same")))
    console.print(table)
    same = sum(all(change.result == "same" for change in row) for row in rows)
    console.print(f"all the same in {same} of {len(rows)}")
    return 0 if same >= 0.95 * len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
