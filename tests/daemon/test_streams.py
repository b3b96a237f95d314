"""Standard streams that are closed, or lie on a disk that takes nothing more."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

from tests.support.daemon import ROOT

_PROGRAM = """
import os
import sys
from daemon.errors import OutputError
from daemon.system.streams import prepare_streams
prepare_streams()
try:
    for number in range(100):
        sys.stdout.write('{"number": %d, "text": "%s"}\\n' % (number, "x" * 70))
        sys.stdout.flush()
except OutputError as error:
    sys.stderr.write(str(error))
    sys.stderr.flush()
os._exit(0)  # as a command ends
"""


_CHILD = "import sys; open(sys.argv[1], 'w').write(str([sys.stdin, sys.stdout, sys.stderr].count(None)))"
_PARENT = f"""
import subprocess
import sys
from daemon.system.streams import prepare_streams
prepare_streams()
subprocess.run([sys.executable, "-c", {_CHILD!r}, sys.argv[1]], check=True)
"""


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


def test_a_disk_that_is_full_keeps_whole_lines(tmp_path: Path) -> None:
    """Half a line of JSON would break whoever reads the file."""
    out = tmp_path / "out.jsonl"
    out.write_text('{"before": true}\n')
    with out.open("a") as file:
        command = [sys.executable, "-c", _PROGRAM]
        done = subprocess.run(command, cwd=ROOT, stdout=file, stderr=subprocess.PIPE, text=True, check=True,
                              preexec_fn=_limited)  # fmt: skip
    assert done.stderr == "standard output cannot be written: File too large"
    text = out.read_text()
    assert text.endswith("}\n")
    assert len([json.loads(line) for line in text.splitlines()]) > 5


def test_processes_have_the_streams_that_were_closed(tmp_path: Path) -> None:
    """The template of capture processes and of the page ended without them: `lookout run ... >&-`."""
    missing = tmp_path / "missing"
    command = [sys.executable, "-c", _PARENT, str(missing)]
    subprocess.run(command, cwd=ROOT, check=True, preexec_fn=lambda: os.closerange(0, 3), close_fds=False)
    assert missing.read_text() == "0"
