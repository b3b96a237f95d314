"""Analyses odd recordings by `lookout batch`, and compares each result with ffprobe.

python -m tests.scan [FOLDER] [NAME ...]: the recordings stay in FOLDER; of these names, or all.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.scan.recordings import RECORDINGS
from tests.scan.scan import scan


def main() -> int:
    folder, *names = sys.argv[1:] or [tempfile.mkdtemp(prefix="scan-")]
    wrong = 0
    for row in scan(Path(folder), names or [*RECORDINGS]):
        wrong += bool(row.faults)
        print(row)  # noqa: T201
    print(f"{wrong} of {len(names or RECORDINGS)} recordings are wrong; they are in {folder}")  # noqa: T201
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
