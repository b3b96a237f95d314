"""`lookout check --draw`: a picture of each source with its rules."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from click.testing import CliRunner

from daemon.analytics.drawn_rules import drawn_on
from daemon.cli import cli
from daemon.errors import LookoutError
from tests.analytics.feed import rules_of

ROOT = Path(__file__).resolve().parents[2]


def test_a_picture_of_each_source_is_written(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    text = (ROOT / "docs/examples/rules.yaml").read_text().replace("../../models", str(ROOT / "models"))
    config.write_text(text + "publisher: {endpoint: 'tcp://127.0.0.1:*'}\n")
    result = CliRunner().invoke(cli, ["check", "-c", str(config), "--draw", str(tmp_path / "drawn")])
    assert result.exit_code == 0, result.output
    pictures = sorted((tmp_path / "drawn").iterdir())
    assert [path.name for path in pictures] == ["gate.jpg", "line.jpg", "object.jpg", "zone.jpg"]
    for path in pictures:
        assert cv2.imread(str(path)).shape == (360, 640, 3)  # type: ignore[union-attr]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    arguments = ["check", "-c", str(ROOT / "docs/examples/rules.yaml"), "--running", "--draw", str(tmp_path / "file")]
    result = CliRunner().invoke(cli, arguments)
    assert isinstance(result.exception, LookoutError)
    assert str(result.exception).startswith("--draw: ")
    assert "\n" not in str(result.exception)


def test_rules_are_drawn_where_they_are() -> None:
    """On a copy; half of the picture is outside of the zone."""
    picture = np.zeros((200, 400, 3), np.uint8)
    zone = {"type": "zone", "name": "z", "points": [[0, 0], [0.4, 0], [0.4, 1], [0, 1]]}
    drawn = drawn_on(picture, rules_of(zone))
    assert drawn[150, 100].any()
    assert not drawn[:, 200:].any()
    assert not picture.any()
