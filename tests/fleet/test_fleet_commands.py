"""`lookout fleet`: on records in memory, and once from end to end on a real etcd."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Sequence
from contextlib import closing
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from daemon.cli import invoke
from daemon.commands import fleet as fleets
from daemon.commands.fleet_rows import Placing, labels_of, source_records
from daemon.commands.fleet_tables import show_rebalance, show_status
from daemon.config.load import load_fleet
from daemon.errors import ConfigError, LookoutError
from daemon.fleet.operations import ConflictError, UnknownError, rebalanced
from daemon.fleet.records import StreamFormat
from tests.fleet.etcd_server import EtcdServer
from tests.fleet.memory_coordinator import MemoryCoordinator, MemoryEngine
from tests.fleet.site import Site
from tests.fleet.views import camera, cameras, member
from tests.support.clock import ManualClock
from tests.support.ports import free_port

CAMERA = "rtsp://10.0.0.7/stream"


@pytest.fixture
def site() -> Site:
    found = Site(MemoryCoordinator(MemoryEngine()), {"a/gpu0": 10, "b/gpu0": 10})
    found.coordinator.put_sources(cameras(12), replace=False)
    found.settle()
    return found


def opened(site: Site) -> fleets.Fleet:
    return fleets.Fleet(site.coordinator, "test")


def printed(show: Callable[[Console], None]) -> str:
    console = Console(width=200, file=StringIO())
    show(console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_status_shows_members_and_what_waits(site: Site) -> None:
    text = printed(lambda console: show_status(fleets.status(opened(site)), console, every_source=False))
    assert "fleet test: 12 sources, 12 owned, 0 unplaced; placer a/gpu0" in text
    assert "camera-3" not in text
    site.coordinator.put_sources({**cameras(30), "x": camera("x", affinity={"site": "moon\x1b[2J"})}, replace=False)
    site.settle()
    text = printed(lambda console: show_status(fleets.status(opened(site)), console, every_source=False))
    assert "31 sources, 20 owned, 11 unplaced" in text
    assert "no room: the GPU's decoder is full on 2 members" in text
    assert "no member has the label site=moon\ufffd[2J" in text
    assert "camera-3 " in printed(lambda console: show_status(fleets.status(opened(site)), console, every_source=True))


def test_status_of_members_in_trouble(site: Site) -> None:
    site.coordinator.drain("b/gpu0", "new disk")
    site.members["a/gpu0"].hold_down("b/gpu0", 60)
    site.members["a/gpu0"].update(member(3))
    site.members.pop("b/gpu0").renewal.revoke()
    rows = {row.name: row for row in fleets.status(opened(site)).members}
    assert (rows["b/gpu0"].state, rows["b/gpu0"].reason, rows["b/gpu0"].held_down) == ("gone", "new disk", True)
    assert rows["a/gpu0"].usage["the detector"] > 1
    text = printed(lambda console: show_status(fleets.status(opened(site)), console, every_source=False))
    assert "new disk; lost once within an hour; held down" in text


def test_add_takes_a_file_as_it_is_written(site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cameras.yaml"
    file.write_text(
        "sources:\n"
        f"- {{id: gate, type: av, url: '{CAMERA}', user: lookout, password: '${{NOT_SET_HERE}}'}}\n"
        "- id: yard\n  type: av\n  url: rtsp://u:${P}@10.0.0.8/1\n"
        "  fleet: {priority: 5, affinity: {site: north}, expected: {codec: hevc, width: 3840, height: 2160, fps: 25}}\n"
    )
    fleets.add(opened(site), (), file, Placing(1, {"floor": "2"}), replace=False)
    view, unset = site.coordinator.view(), "${NOT_SET_HERE}"
    assert view.sources["gate"].config["password"] == unset
    assert (view.sources["gate"].priority, view.sources["gate"].affinity) == (1, {"floor": "2"})
    yard = view.sources["yard"]
    assert yard.config == {"id": "yard", "type": "av", "url": "rtsp://u:${P}@10.0.0.8/1"}
    assert (yard.priority, yard.affinity) == (5, {"floor": "2", "site": "north"})
    assert yard.expected == StreamFormat(codec="hevc", width=3840, height=2160, fps=25)
    fleets.add(opened(site), (), file, Placing(1, {"floor": "2"}), replace=False)
    assert capsys.readouterr().out == "2 sources added\n0 sources added, 2 there already\n"


def test_add_takes_what_run_takes(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    fleets.add(opened(site), [CAMERA, "rtsp://u:secret@10.0.0.7/2"], None, Placing(), replace=False)
    fleets.add(opened(site), [CAMERA], None, Placing(2, id="gate"), replace=False)
    view = site.coordinator.view()
    assert {"10.0.0.7", "10.0.0.7-2", "gate"} <= view.sources.keys()
    captured = capsys.readouterr()
    assert "passwords are written to the coordinator as they are: 10.0.0.7-2; ${NAME} keeps them out" in captured.err
    assert "secret" not in captured.out + captured.err


def test_a_source_that_differs_is_replaced_only_when_told(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    fleets.add(opened(site), [CAMERA], None, Placing(id="gate"), replace=False)
    with pytest.raises(ConflictError, match="in the fleet already, with another configuration: gate; --replace"):
        fleets.add(opened(site), [CAMERA], None, Placing(7, id="gate"), replace=False)
    fleets.add(opened(site), [CAMERA], None, Placing(7, id="gate"), replace=True)
    assert site.coordinator.view().sources["gate"].priority == 7
    assert capsys.readouterr().out.endswith("0 sources added, 1 replaced\n")
    with pytest.raises(ConflictError, match="differ in their case alone"):
        fleets.add(opened(site), [CAMERA], None, Placing(7, id="GATE"), replace=True)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"type": "av", "url": CAMERA}, "sources[0].missing key `id`"),
        ({"id": "1", "type": "av", "url": CAMERA, "fps": 1}, "sources[0].unknown key `fps`"),
        ({"id": "1", "type": "av", "url": "clips/a.mp4"}, "sources[0].url: clips/a.mp4 is a relative path"),
        ({"id": "${A}", "type": "av", "url": CAMERA}, "sources[0].id: ${NAME} is only replaced in URLs and secrets"),
        ({"id": "1", "type": "av", "url": CAMERA, "fleet": {"site": 1}}, "sources[0].fleet.unknown key `site`"),
        ({"id": "1", "type": "av", "url": CAMERA, "fleet": {"priority": "high"}}, "sources[0].fleet.priority: must be"),
        ("camera", "sources[0]: must be a mapping"),
    ],
)
def test_mistakes_in_sources_name_their_key(row: object, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        source_records([row], Placing())
    assert str(caught.value).startswith(words)


def test_two_sources_of_a_file_need_two_ids() -> None:
    rows = [{"id": id, "type": "av", "url": CAMERA} for id in ("gate", "Gate")]
    with pytest.raises(ConfigError, match=r"sources\[1\].id: 'Gate' and 'gate' are the same"):
        source_records(rows, Placing())
    with pytest.raises(LookoutError, match="--id names one source, and there are 2"):
        source_records(rows, Placing(id="x"))
    with pytest.raises(LookoutError, match="--label 'north' is not KEY=VALUE"):
        labels_of(["north"])


def test_drain_moves_everything_and_says_what_has_no_room(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    clock.on_wait = site.settle
    assert fleets.drain(opened(site), "b/gpu0", "new disk", 60, clock) == 0
    assert set(site.owners().values()) == {"a/gpu0"}
    captured = capsys.readouterr()
    assert captured.err.startswith("no other member has room for 2 sources: camera-")
    assert captured.out == "b/gpu0 is drained, and has no source any more\n"
    fleets.undrain(opened(site), "b/gpu0")
    site.settle()
    assert len(site.owners()) == 12
    with pytest.raises(ConflictError, match="b/gpu0 is not drained"):
        fleets.undrain(opened(site), "b/gpu0")


def test_drain_waits_no_longer_than_it_may(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """A member that does not answer keeps what it has."""
    assert fleets.drain(opened(site), "b/gpu0", "", 2, ManualClock()) == fleets.NOT_IN_TIME
    assert "b/gpu0 still has" in capsys.readouterr().err


def test_a_move_is_checked_first_and_then_pinned(site: Site) -> None:
    id = next(id for id, owner in site.owners().items() if owner == "a/gpu0")
    fleets.move(opened(site), [id], "b/gpu0", pinned=True)
    site.settle()
    assert site.owners()[id] == "b/gpu0"
    assert site.coordinator.view().wants[id].pinned
    fleets.move(opened(site), [id], "b/gpu0", pinned=False)
    site.settle()
    assert not site.coordinator.view().wants[id].pinned
    many = [id for id, owner in site.owners().items() if owner == "a/gpu0"]
    site.coordinator.put_sources({f"more-{n}": camera(f"more-{n}") for n in range(8)}, replace=False)
    site.settle()
    with pytest.raises(ConflictError, match="cannot be moved to b/gpu0: b/gpu0 has no room for it"):
        fleets.move(opened(site), many, "b/gpu0", pinned=True)
    site.coordinator.drain("b/gpu0", "")
    with pytest.raises(ConflictError, match="cannot be moved to b/gpu0: b/gpu0 is drained"):
        fleets.move(opened(site), many, "b/gpu0", pinned=True)


def test_names_that_the_fleet_does_not_have(site: Site) -> None:
    with pytest.raises(UnknownError, match="not a source of the fleet: camera-99"):
        fleets.remove(opened(site), ["camera-1", "camera-99"])
    with pytest.raises(UnknownError, match="not a source of the fleet: camera-99"):
        fleets.move(opened(site), ["camera-99"], "a/gpu0", pinned=True)
    unknown = pytest.raises(UnknownError, match="c/gpu0 is not a member of the fleet: the members are a/gpu0, b/gpu0")
    with unknown:
        fleets.drain(opened(site), "c/gpu0", "", None)
    with unknown:
        fleets.undrain(opened(site), "c/gpu0")
    with unknown:
        fleets.move(opened(site), ["camera-1"], "c/gpu0", pinned=True)
    assert "camera-1" in site.coordinator.view().sources


def test_rebalance_moves_to_a_new_member_and_a_dry_run_does_not(site: Site) -> None:
    site.join("c/gpu0", 10)
    site.settle()
    before = site.owners()
    text = printed(lambda console: show_rebalance(rebalanced(site.coordinator, dry_run=True), console, dry_run=True))
    assert "a dry run, and nothing was moved" in text
    site.settle()
    assert site.owners() == before
    found = rebalanced(site.coordinator, dry_run=False)
    site.settle()
    assert {id for id, owner in site.owners().items() if owner != before[id]} == {row.source for row in found.moves}
    assert list(site.owners().values()).count("c/gpu0") == 4
    assert not any(want.pinned for want in site.coordinator.view().wants.values())
    again = printed(lambda console: show_rebalance(rebalanced(site.coordinator, dry_run=True), console, dry_run=True))
    assert "nothing to move" in again


def test_backup_and_restore(site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = camera("gate", url="rtsp://u:${PASSWORD}@10.0.0.1/gate")
    site.coordinator.put_sources({"gate": secret}, replace=False)
    site.settle()
    fleets.move(opened(site), ["gate"], "b/gpu0", pinned=True)
    site.coordinator.drain("c/gpu0", "broken")
    file = tmp_path / "fleet.json"
    fleets.backup(opened(site), file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "${PASSWORD}" in file.read_text()
    fresh = Site(MemoryCoordinator(MemoryEngine()), {"a/gpu0": 10})
    capsys.readouterr()
    fleets.restore(opened(fresh), file, replace=False)
    view = fresh.coordinator.view()
    assert dict(view.sources) == dict(site.coordinator.view().sources)
    assert view.drained == {"c/gpu0": "broken"}
    captured = capsys.readouterr()
    assert captured.out == "13 sources restored, 0 replaced, 0 there already\n"
    assert captured.err == "their member is not in the fleet: no pin for gate\n"
    fleets.restore(opened(site), file, replace=False)
    assert capsys.readouterr().out == "0 sources restored, 0 replaced, 13 there already\n"
    assert site.coordinator.view().wants["gate"].pinned


@pytest.mark.parametrize("content", [b"", b"{}", b'{"fleet": "x", "sources": {"a": 5}}', b"\xff\xfe"])
def test_a_file_that_is_no_backup(site: Site, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "fleet.json"
    file.write_bytes(content)
    with pytest.raises(LookoutError, match="is not a back-up of `lookout fleet backup`"):
        fleets.restore(opened(site), file, replace=False)
    with pytest.raises(LookoutError, match="cannot be read: No such file"):
        fleets.restore(opened(site), tmp_path / "absent.json", replace=False)
    with pytest.raises(LookoutError, match="cannot be written: No such file"):
        fleets.backup(opened(site), tmp_path / "absent" / "fleet.json")


# --- the command line ----------------------------------------------------------------------------------------------


def lines_of(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    capsys.readouterr()
    assert invoke(["fleet", *arguments]) == code, capsys.readouterr()
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.err


@pytest.mark.needs("etcd-server", "etcd-client")
def test_from_end_to_end(etcd: EtcdServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from daemon.fleet.etcd_coordinator import EtcdCoordinator

    config = tmp_path / "fleet.yaml"
    config.write_text(f"fleet:\n  coordinator: etcd://127.0.0.1:{etcd.port}\n  name: end-to-end\n")
    at = ("-c", str(config))
    assert lines_of(capsys, "add", *at, CAMERA, "--id", "gate", "--label", "site=north") == "1 source added\n"
    with closing(EtcdCoordinator(etcd.settings(), "end-to-end")) as coordinator:
        site = Site(coordinator, {"a/gpu0": 5, "b/gpu0": 5})
        site.settle()
        status = json.loads(lines_of(capsys, "status", *at, "--json"))
        assert (status["unplaced"], [row["name"] for row in status["members"]]) == (1, ["a/gpu0", "b/gpu0"])
        assert lines_of(capsys, "add", *at, CAMERA, "--id", "gate", "--replace") == "0 sources added, 1 replaced\n"
        site.settle()
        owner = site.owners()["gate"]
        other = next(name for name in site.members if name != owner)
        assert lines_of(capsys, "drain", *at, owner) == f"{owner} is drained\n"
        assert lines_of(capsys, "undrain", *at, owner) == f"{owner} gets sources again\n"
        assert lines_of(capsys, "move", *at, "gate", other) == f"1 source moved to {other}, and pinned there\n"
        site.settle()
        assert site.owners() == {"gate": other}
        assert "nothing to move" in lines_of(capsys, "rebalance", *at, "--dry-run")
        assert "placer a/gpu0" in lines_of(capsys, "status", *at, "--sources")
        lines_of(capsys, "backup", *at, str(tmp_path / "kept.json"))
        assert lines_of(capsys, "remove", *at, "gate") == "1 source removed\n"
        restored = lines_of(capsys, "restore", *at, str(tmp_path / "kept.json"))
        assert restored.startswith("1 source restored")
        site.settle()
        assert site.owners() == {"gate": other}
    assert "not a member" in lines_of(capsys, "drain", *at, "c/gpu0", code=2)
    url = ("--coordinator", f"etcd://127.0.0.1:{etcd.port}", "--name", "other")
    assert "0 sources" in lines_of(capsys, "status", *url)


def test_one_line_for_each_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "fleet.yaml"
    cases: Sequence[tuple[str, str]] = [
        ("", "is not a mapping of keys"),
        ("model: {path: x}", "fleet.coordinator is not set: write it, or use --coordinator URL"),
        ("fleet: {coordinator: 'http://x:1'}", "fleet.coordinator: 'http://x:1' is none of etcd://HOST:PORT"),
        ("fleet: {coordinator: 'etcd://x:1', engine: y}", "unknown key `engine`"),
        ("fleet: {coordinator: 'etcd://x:1', user: u, password: '${ABSENT}'}", "ABSENT is not set"),
        ("fleet: {coordinator: 'etcd://127.0.0.1:PORT'}", "etcd"),
    ]
    for text, words in cases:
        config.write_text(text.replace("PORT", str(free_port())))
        found = lines_of(capsys, "status", "-c", str(config), code=2)
        assert words in found
        assert found.count("\n") == 1
    assert "does not exist" in lines_of(capsys, "status", "-c", str(tmp_path / "absent.yaml"), code=2)
    assert "one of both" in lines_of(capsys, "add", "--coordinator", "etcd://127.0.0.1:1", code=2)


def test_other_sections_of_a_file_are_not_read(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("sources: 5\nmodel: ${X}\nfleet: {coordinator: 'etcds://x:1', tls_ca: ca.pem}\n")
    assert load_fleet(config).tls_ca == tmp_path / "ca.pem"
