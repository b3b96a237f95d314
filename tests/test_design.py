"""docs/design.md: each room of its walks is in the tree, and there are few; threads have the names that it lists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from daemon.lifecycle import Phase
from tests.support.daemon import ROOT

DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
_ROOM = re.compile(r"^\d+\. `([\w.]+): ([\w.]+)` — \S")
_MAX_FRAME, _MAX_FRAME_WITH_PROCESS, _MAX_OF_MODELS = 15, 20, 1
_MAX_EVENT, _MAX_EVENT_WITH_PROCESS = 11, 16
_FORK = ("daemon.analytics.event_publisher", "EventPublisher.deliver")  # where the way to the journal begins
Room = tuple[str, str]


def _lists(title: str) -> list[list[Room]]:
    """The numbered lists of a section."""
    (section,) = re.findall(rf"^## {title}\n(.*?)(?=^## )", DESIGN, re.MULTILINE | re.DOTALL)
    found: list[list[Room]] = []
    for line in section.splitlines():
        if line.startswith("1. "):
            found.append([])
        if re.match(r"\d+\. ", line):
            room = _ROOM.match(line)
            assert room, f"not a room: {line}"
            found[-1].append((room[1], room[2]))
    return found


def _is_there(room: Room) -> bool:
    """Whether the module defines the function; methods are `Class.method`."""
    path = ROOT / f"{room[0].replace('.', '/')}.py"
    if not path.is_file():
        return False
    nodes: list[ast.stmt] = ast.parse(path.read_text()).body
    *classes, function = room[1].split(".")
    for name in classes:
        nodes = [inner for node in nodes if isinstance(node, ast.ClassDef) and node.name == name for inner in node.body]
    return any(isinstance(node, ast.FunctionDef) and node.name == function for node in nodes)


@pytest.mark.parametrize("title", ["The walk of a frame", "The walk of an event"])
def test_each_room_is_in_the_tree_and_entered_once(title: str) -> None:
    rooms = [room for rows in _lists(title) for room in rows]
    assert [room for room in rooms if not _is_there(room)] == []
    assert len(rooms) == len(set(rooms))


def test_a_room_that_is_not_there_is_found() -> None:
    assert _is_there(("daemon.pipeline.frame_board", "FrameBoard.put"))
    assert not _is_there(("daemon.pipeline.frame_board", "FrameBoard.no_such"))
    assert not _is_there(("daemon.pipeline.frame_board", "put"))
    assert not _is_there(("daemon.no_such", "put"))


def test_a_frame_passes_few_rooms() -> None:
    own, of_process, of_models = _lists("The walk of a frame")
    assert len(own) <= _MAX_FRAME
    assert len(of_models) <= _MAX_OF_MODELS
    assert len(own) + len(of_process) <= _MAX_FRAME_WITH_PROCESS


def test_an_event_passes_few_rooms_on_each_way() -> None:
    own, of_process, to_journal = _lists("The walk of an event")
    until_fork = own.index(_FORK) + 1
    for rooms in (len(own), until_fork + len(to_journal)):
        assert rooms <= _MAX_EVENT
        assert rooms + len(of_process) <= _MAX_EVENT_WITH_PROCESS


def _threads() -> Iterator[tuple[str, str]]:
    """The fixed part of each name that a thread of the daemon gets, and its file."""
    given = re.compile(
        r"""(?:name=|thread_name_prefix=|ThreadPoolExecutor\(\w+,\ )f?"([a-z-]+)   # a thread, or a pool of them
        |super\(\)\.__init__\(f?"([a-z-]+)\{?[a-z]*\}?",\ runtime""",  # a `ThreadPart`
        re.VERBOSE,
    )
    for package in ("daemon", "detectors"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name.startswith("daemon/bench/"):
                continue
            for line in path.read_text().splitlines():
                if "hread" in line or "super().__init__(" in line:
                    yield from ((first or second, name) for first, second in given.findall(line))


def test_every_thread_is_listed_by_its_name() -> None:
    (section,) = re.findall(r"^## Threads\n(.*?)(?=^## )", DESIGN, re.MULTILINE | re.DOTALL)
    listed = re.findall(r"`([^`]+)`", section)
    threads = set(_threads())
    assert len(threads) > 30
    missing = [f"{file}: {name}" for name, file in sorted(threads) if not any(row.startswith(name) for row in listed)]
    assert missing == []


def test_the_page_is_short() -> None:
    assert len(DESIGN.splitlines()) <= 250


def test_the_table_of_phases_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| ([\w, ]+) \| (\d\.\d+) \| ", DESIGN, re.MULTILINE)
    listed = [(name.strip().upper(), float(share)) for names, share in rows for name in names.split(",")]
    assert listed == [(phase.name, phase.share) for phase in Phase]
