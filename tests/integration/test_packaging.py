"""What is around the code: the unit file, the documents' examples, the Makefile's promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemon import ROOT, Lookout


@pytest.mark.needs("systemd")
def test_the_unit_is_one_that_systemd_accepts(tmp_path: Path) -> None:
    unit = (ROOT / "systemd" / "lookout.service").read_text()
    file = tmp_path / "lookout.service"
    file.write_text(unit.replace("/opt/lookout/bin/lookout", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_ten_lines_of_the_wire_document_work(tmp_path: Path) -> None:
    """They stand in the document as they stand in the file, and they print what the daemon sees."""
    example = ROOT / "docs" / "examples" / "subscribe.py"
    for path in (example, example.with_suffix(".mjs")):
        assert path.read_text() in (ROOT / "docs" / "wire.md").read_text()
    with Lookout(tmp_path, {"sources": [{"id": "street", "type": "synthetic"}]}) as lookout:
        reader = subprocess.Popen([sys.executable, str(example), lookout.endpoint], stdout=subprocess.PIPE, text=True)
        assert reader.stdout is not None
        source, seq, *labels = reader.stdout.readline().split()
        reader.kill()
        reader.communicate()
    assert source == "street"
    assert seq.isdigit()
    assert labels
