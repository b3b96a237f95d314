"""A file as a target."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.bridge.port import AwayError
from daemon.bridge.targets.opening import open_target
from daemon.config.targets import FileTarget
from tests.bridge.told import context, deliveries


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    """One that is read by nobody, but could be."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    yield path
    os.close(reader)


def test_a_pipe_is_refused_because_its_reader_may_stall(pipe: Path) -> None:
    with pytest.raises(AwayError, match="pipe: the path is no regular file"):
        open_target(FileTarget(name="lines", path=pipe), context())


def test_a_pipe_that_takes_the_files_place_is_refused(pipe: Path, tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    connection = open_target(FileTarget(name="lines", path=path), context())
    assert connection.deliver(deliveries(1, 2)) == [None, None]
    pipe.rename(path)
    with pytest.raises(AwayError, match="no regular file") as caught:
        connection.deliver(deliveries(3, 2))
    assert caught.value.settled == []
    connection.close()
