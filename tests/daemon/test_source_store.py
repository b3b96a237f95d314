"""The file of sources that outlive the process."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from daemon.config.load import source_of
from daemon.config.sources import SyntheticConfig
from daemon.control.source_store import SourceStore
from daemon.errors import ConfigError
from tests.lifetimes.running import STREET, config_of

_FEW = [SyntheticConfig(id="few", fps=1)]
_MANY = [SyntheticConfig(id=f"many-{number}", fps=1) for number in range(300)]


def test_many_may_write_at_once(tmp_path: Path) -> None:
    """Whoever reads meanwhile reads the file of one of them, whole; and nothing else is left beside it."""
    kept, config, ids = SourceStore(tmp_path / "sources.json"), config_of(STREET), set[tuple[str, ...]]()
    kept.write(_FEW)
    failures: list[BaseException] = []

    def write(sources: list[SyntheticConfig]) -> None:
        try:
            for _ in range(40):
                kept.write(sources)
        except BaseException as error:  # noqa: BLE001 - the test tells it
            failures.append(error)

    writers = [threading.Thread(target=write, args=(rows,)) for rows in (_FEW, _MANY, _FEW, _MANY)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        ids.add(tuple(source.id for source in kept.apply_to(config).sources))
    assert failures == []
    assert ids <= {("few",), tuple(source.id for source in _MANY)}
    assert [path.name for path in tmp_path.iterdir()] == ["sources.json"]
    assert stat.S_IMODE((tmp_path / "sources.json").stat().st_mode) == 0o600


def test_what_cannot_be_written_is_said_and_leaves_the_file(tmp_path: Path) -> None:
    kept = SourceStore(tmp_path / "missing" / "sources.json")
    with pytest.raises(ConfigError, match="cannot be written: No such file or directory"):
        kept.write(_FEW)


def test_what_a_killed_process_has_left_is_removed(tmp_path: Path) -> None:
    kept = SourceStore(tmp_path / "sources.json")
    kept.write(_FEW)
    (tmp_path / ".sources.json.abc").write_text("hunter2")
    (tmp_path / "sources.json.mine").write_text("a copy")
    kept.remove_leftovers()
    assert {path.name for path in tmp_path.iterdir()} == {"sources.json", "sources.json.mine"}


def test_a_variable_is_written_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No password of the environment gets into the file, and the next process takes it from its own environment."""
    monkeypatch.setenv("PW", "hunter2")
    rows = {"id": "a", "type": "av", "url": "rtsp://me:${PW}@cam/1", "options": {"headers": "Key: ${PW}"}}
    kept = SourceStore(tmp_path / "sources.json")
    kept.write([source_of(rows)])
    assert "hunter2" not in (tmp_path / "sources.json").read_text()
    assert kept.apply_to(config_of(STREET)).sources == [source_of(rows)]
    monkeypatch.setenv("PW", "other")
    assert kept.apply_to(config_of(STREET)).sources == [source_of(rows)]
