"""A folder of evidence: it is checked by itself alone, and every change of it is found."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from daemon.cli import invoke
from daemon.errors import LookoutError
from daemon.recording.errors import StoreError
from daemon.recording.evidence.background import Background, events_of
from daemon.recording.evidence.check import Checked, check_folder
from daemon.recording.evidence.content import Evidence, EvidenceOrder
from daemon.recording.evidence.folder import PART, ExportedEvidence, write_folder
from daemon.recording.evidence.signing import SigningKey, make_key, read_key, read_public_key
from daemon.recording.evidence.tar import tar_of
from daemon.recording.index import NAME, Index
from daemon.recording.reconcile import reconcile
from daemon.recording.records import FileFacts
from daemon.recording.retention import Retention, Rules
from daemon.recording.scan import scan
from daemon.recording.store import Store
from daemon.sources.bitstream import Bitstream
from tests.recording.rig import DAY
from tests.recording.test_tracks import Seeing
from tests.support.clock import ManualClock
from tests.support.events import Rig as Events
from tests.support.events import crossing, frame
from tests.support.recorded import SECOND, begun, clip, played, record, units


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return make_key(tmp_path_factory.mktemp("keys") / "key.pem")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, clips: Path) -> Path:
    """A store with two minutes of video, with boxes."""
    rig = Seeing(tmp_path_factory.mktemp("seen") / "store", clip(clips, "h264"))
    rig.send(70)
    rig.finish()
    return rig.folder


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory, seen: Path, key: SigningKey) -> Path:
    """A signed folder, far from its store."""
    out = tmp_path_factory.mktemp("elsewhere") / "evidence"
    with closing(Store.open(seen)) as store, closing(Index(store)) as index:
        rows = index.files("door")
        begin, end = rows[0].begin, rows[-1].end
        write_folder(store, index, _order(begin, end, key), out)
    return out


@pytest.fixture
def copy(evidence: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(evidence, tmp_path / "copy"))


def _order(begin: int, end: int, key: SigningKey | None = None) -> EvidenceOrder:
    return EvidenceOrder("door", begin, end, ManualClock().utc_ns(), "somebody", Background({"id": "door"}), key)


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _named(found: Checked) -> str:
    return " ".join(finding.path for finding in found.findings)


def test_the_files_are_those_of_the_store_and_coreutils_check_them(evidence: Path, seen: Path) -> None:
    paths = _files(evidence)
    videos = [path for path in paths if path.endswith((".mp4", ".trk"))]
    assert len(videos) == 4
    for path in videos:
        assert (evidence / path).read_bytes() == (seen / path.removeprefix("video/")).read_bytes()
    others = [path for path in paths if path not in videos]
    assert others == ["README.txt", "SHA256SUMS", "SHA256SUMS.sig", "events.json", "locks.json", "manifest.json",
                      "public-key.pem", "settings.json", "timeline.json"]  # fmt: skip
    done = subprocess.run(["sha256sum", "--strict", "-c", "SHA256SUMS"], cwd=evidence, capture_output=True, check=True)
    assert done.stdout.count(b": OK") == len(paths) - 2
    manifest = json.loads((evidence / "manifest.json").read_bytes())
    assert manifest["models"][0]["served"]["labels"] == ["person", "car"]
    assert [row["clock"] for row in manifest["video"]] == ["arrival", "arrival"]
    assert not (evidence.parent / "evidence.part").exists()
    assert not any(path.stat().st_mode & 0o007 for path in evidence.rglob("*"))


def test_it_is_sound_by_itself_alone(evidence: Path, key: SigningKey, seen: Path) -> None:
    found = check_folder(evidence, key.public_pem)
    assert (found.findings, found.source, found.signed_by, found.is_known) == ([], "door", key.fingerprint, True)
    assert check_folder(evidence).is_known is False
    assert str(seen) not in " ".join(path.read_text(errors="replace") for path in evidence.glob("*.*"))


def test_what_a_camera_has_signed_is_still_in_its_packets(
    store: Store, index: Index, clips: Path, tmp_path: Path
) -> None:
    """Signatures come as user data in SEI (H.264, D.1.7), as the encoder of this clip says its name."""
    camera = clip(clips, "h264")
    index.add_file(record(store, camera))
    _made(store, index, tmp_path / "out")
    (path,) = (tmp_path / "out").rglob("*.mp4")
    data = bytes(camera.samples[0].data)
    begin = data.index(b"\0\0\1\x06\x05") + 3
    end = data.index(b"\0\0\1", begin)
    assert b"x264" in data[begin:end]
    assert data[begin:end].rstrip(b"\0") in path.read_bytes()
    bits = Bitstream(camera.stream.codec, camera.stream.extradata)
    assert [row[3] for row in played(path)] == [units(bits, sample.data) for sample in camera.samples]


def _flips(folder: Path, count: int, seed: int) -> Iterator[tuple[str, int, int]]:
    """Each kind of file at first, and then anywhere."""
    draw, paths = random.Random(seed), _files(folder)
    for number in range(count):
        path = paths[number] if number < len(paths) else draw.choice(paths)
        yield path, draw.randrange((folder / path).stat().st_size), 1 << draw.randrange(8)


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.long)])
def test_one_flipped_bit_is_found_and_its_file_named(copy: Path, key: SigningKey, count: int) -> None:
    times = {row["path"]: row for row in json.loads((copy / "manifest.json").read_bytes())["video"]}
    for path, at, bit in _flips(copy, count, seed=51):
        file = copy / path
        whole = file.read_bytes()
        file.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
        found = check_folder(copy, key.public_pem)
        assert path in _named(found), (path, at, bit, found.findings)
        for finding in found.findings:
            if finding.path.endswith(".mp4"):
                assert path == finding.path
                row = next((row for row in times[path]["fragments"] if row[0] <= at < row[0] + row[1]), None)
                begin, end = (row[2], row[3]) if row else (times[path]["begin"], times[path]["end"])
                assert finding.begin is not None
                assert finding.end is not None
                assert begin >= finding.begin
                assert end <= finding.end
        file.write_bytes(whole)
    assert check_folder(copy, key.public_pem).findings == []


def test_what_is_cut_removed_added_renamed_or_swapped_is_named(copy: Path, key: SigningKey) -> None:
    one, two = (path for path in _files(copy) if path.endswith(".mp4"))
    rows = {row["path"]: row for row in json.loads((copy / "manifest.json").read_bytes())["video"]}
    whole = (copy / one).read_bytes(), (copy / two).read_bytes()

    def finding(path: str) -> tuple[str, int | None, int | None, str]:
        (row,) = check_folder(copy, key.public_pem).findings
        assert row.path == path
        return row.kind, row.begin, row.end, row.detail

    last = rows[one]["fragments"][-1]
    (copy / one).write_bytes(whole[0][: last[0] + 40])
    assert finding(one)[:3] == ("changed", last[2], last[3])
    (copy / one).unlink()
    assert finding(one)[:3] == ("removed", rows[one]["begin"], rows[one]["end"])
    (copy / "other.mp4").write_bytes(whole[0])
    assert finding(one) == ("renamed", rows[one]["begin"], rows[one]["end"], "it is other.mp4 now")
    (copy / "other.mp4").unlink()
    (copy / one).write_bytes(whole[1])
    (copy / two).write_bytes(whole[0])
    assert [row.detail for row in check_folder(copy).findings] == [f"it has the content of {two}",
                                                                   f"it has the content of {one}"]  # fmt: skip
    (copy / one).write_bytes(whole[0])
    (copy / two).write_bytes(whole[1])
    fragments = rows[one]["fragments"][:3]
    parts = [whole[0][row[0] : row[0] + row[1]] for row in fragments]
    begin, end = fragments[0][0], fragments[2][0] + fragments[2][1]
    (copy / one).write_bytes(whole[0][:begin] + parts[1] + parts[0] + parts[2] + whole[0][end:])
    assert finding(one)[:3] == ("changed", fragments[0][2], fragments[1][3])
    (copy / one).write_bytes(whole[0])
    for name, make in (("added.txt", Path.touch), ("pipe", os.mkfifo), ("video/folder", Path.mkdir)):
        make(copy / name)
        assert finding(name)[0] == "added"
        shutil.rmtree(copy / name) if (copy / name).is_dir() else (copy / name).unlink()
    (copy / "link").symlink_to("/etc/passwd")
    assert finding("link")[0] == "added"
    (copy / "link").unlink()
    for name in _files(copy):
        aside = (copy / name).rename(copy.parent / "aside")
        assert name in _named(check_folder(copy, key.public_pem)), name
        aside.rename(copy / name)
    assert check_folder(copy, key.public_pem).findings == []


def test_who_makes_all_of_it_anew_has_not_the_key(copy: Path, key: SigningKey, tmp_path: Path) -> None:
    """Without a key that is known from elsewhere it looks whole, which the last line says."""
    (copy / "locks.json").write_text("[]\n" if (copy / "locks.json").read_text() != "[]\n" else "[ ]\n")
    _list_anew(copy)
    other = make_key(tmp_path / "other.pem")
    (copy / "SHA256SUMS.sig").write_bytes(other.sign((copy / "SHA256SUMS").read_bytes()))
    assert "SHA256SUMS.sig" in _named(check_folder(copy, key.public_pem))
    assert "SHA256SUMS.sig" in _named(check_folder(copy))
    (copy / "public-key.pem").write_bytes(other.public_pem)
    _list_anew(copy)
    (copy / "SHA256SUMS.sig").write_bytes(other.sign((copy / "SHA256SUMS").read_bytes()))
    found = check_folder(copy)
    assert (found.findings, found.signed_by, found.is_known) == ([], other.fingerprint, False)
    assert "SHA256SUMS.sig" in _named(check_folder(copy, key.public_pem))
    (copy / "SHA256SUMS.sig").unlink()
    assert [row.kind for row in check_folder(copy, key.public_pem).findings] == ["removed"]


def _list_anew(folder: Path) -> None:
    import hashlib

    def digest(path: str) -> str:
        return hashlib.sha256((folder / path).read_bytes()).hexdigest()

    manifest = json.loads((folder / "manifest.json").read_bytes())
    for row in manifest["files"]:
        row["sha256"], row["bytes"] = digest(row["path"]), (folder / row["path"]).stat().st_size
    (folder / "manifest.json").write_text(json.dumps(manifest))
    paths = sorted([row["path"] for row in manifest["files"]] + ["manifest.json"])
    (folder / "SHA256SUMS").write_text("".join(f"{digest(path)}  {path}\n" for path in paths))


def test_a_hostile_manifest_leads_nowhere(copy: Path) -> None:
    """Its paths are looked up among the files that lie there, and never opened."""
    manifest = json.loads((copy / "manifest.json").read_bytes())
    for path in ("../../../etc/passwd", "/etc/passwd", "video/../../x", "\0", "x" * 9000):
        manifest["files"][0]["path"] = manifest["video"][0]["path"] = path
        (copy / "manifest.json").write_text(json.dumps(manifest))
        assert check_folder(copy).findings
    for number in (-1, 1 << 62):
        manifest["video"][0]["beginning"] = number
        manifest["video"][0]["fragments"][0][:2] = [number, -number]
        (copy / "manifest.json").write_text(json.dumps(manifest))
        assert check_folder(copy).findings
    manifest["files"][0]["path"] = "?"
    strange = json.dumps(manifest).encode().replace(b'"?"', b'"\\ud800"')
    for text in (b"", b"{}", b"[" * 100_000, b"\xff", b"null", strange):
        (copy / "manifest.json").write_bytes(text)
        assert "manifest.json" in _named(check_folder(copy))
    deep = copy / "/".join("d" * 300)
    deep.mkdir(parents=True)
    (copy / os.fsdecode(b"\xff\n")).touch()
    found = check_folder(copy)
    assert {"d/d/d/d/d/d/d/d", "\ufffd\ufffd"} <= {row.path for row in found.findings}
    msgspec.json.encode(found)


# --- making it -------------------------------------------------------------------------------------------------------


@pytest.fixture
def index(store: Store) -> Iterator[Index]:
    with closing(Index(store)) as opened:
        yield opened


@pytest.fixture
def files(store: Store, index: Index, clips: Path) -> list[FileFacts]:
    """Three files of three seconds, and one that is being written."""
    found: list[FileFacts] = []
    for at in (0, 7 * SECOND, 10 * SECOND):
        found.append(record(store, clip(clips, "h264-b"), at=at, before=found[-1] if found else None))
        index.add_file(found[-1], scan(store, found[-1].path).head.gaps)
    return found


def _made(store: Store, index: Index, out: Path, begin: int = 0, end: int = 1 << 62) -> ExportedEvidence:
    return write_folder(store, index, _order(begin, end), out)


def test_a_file_that_is_written_is_taken_as_far_as_it_is_whole(
    store: Store, index: Index, files: Sequence[FileFacts], clips: Path, tmp_path: Path
) -> None:
    file = begun(store, clip(clips, "h264"), at=60 * SECOND)
    index.add_file(file.facts)
    path = store.path / file.path
    with path.open("ab") as more:
        more.write(b"half of a fragment")
    done = _made(store, index, tmp_path / "out")
    assert done.faults == []
    assert [row.cause for row in done.gaps] == ["off", "source_down", "expired"]
    copied = (tmp_path / "out" / "video" / file.path).read_bytes()
    assert copied == path.read_bytes()[: file.size]
    assert check_folder(tmp_path / "out").findings == []
    file.detach()
    assert len(files) == 3


def test_none_is_made_from_an_index_that_may_lack_files(
    store: Store, files: Sequence[FileFacts], tmp_path: Path
) -> None:
    (store.path / NAME).unlink()
    with closing(Index(store)) as other:
        other.add_file(files[-1])
        with pytest.raises(StoreError, match="its index is being made from the files"):
            _made(store, other, tmp_path / "out")
        reconcile(store, other)
        assert len(_made(store, other, tmp_path / "out").missing) == 0
    assert len([*(tmp_path / "out" / "video").rglob("*.mp4")]) == len(files)


def test_what_was_damaged_before_is_told_then_and_later(
    store: Store, index: Index, files: Sequence[FileFacts], tmp_path: Path
) -> None:
    found = scan(store, files[0].path)
    row = found.fragments[1]
    path = store.path / files[0].path
    content = bytearray(path.read_bytes())
    content[row.offset + row.size // 2] ^= 1
    path.write_bytes(content)
    (store.path / files[1].path).unlink()
    done = _made(store, index, tmp_path / "out")
    assert [(fault.begin, fault.end) for fault in done.faults] == [(row.begin, row.end)]
    assert [(gone.id, gone.expired) for gone in done.missing] == [(files[1].id, False)]
    findings = [(row.kind, row.begin, row.end) for row in check_folder(tmp_path / "out").findings]
    assert findings == [("changed", row.begin, row.end), ("removed", files[0].end, files[2].begin)]
    readme = (tmp_path / "out" / "README.txt").read_text()
    assert "removed from the store by somebody" in readme


@pytest.mark.parametrize("stolen", [0, 1, 2])
def test_a_recording_that_was_stolen_is_told_wherever_it_lay(
    store: Store, index: Index, files: Sequence[FileFacts], tmp_path: Path, stolen: int
) -> None:
    """Also at an end of the time, where only the index knows of it."""
    (store.path / files[stolen].path).unlink()
    done = _made(store, index, tmp_path / "out")
    assert [(gone.id, gone.expired) for gone in done.missing] == [(files[stolen].id, False)]
    rows = json.loads((tmp_path / "out" / "timeline.json").read_bytes())["rows"]
    assert [row["begin"] for row in rows if row.get("cause") == "missing"] == [files[stolen].begin]
    assert {row["file"] for row in rows if "file" in row} == {facts.id for facts in files} - {files[stolen].id}
    (finding,) = check_folder(tmp_path / "out").findings
    assert (finding.kind, files[stolen].id in finding.detail) == ("removed", True)
    assert finding.begin is not None
    assert finding.end is not None
    assert finding.begin <= files[stolen].begin < files[stolen].end <= finding.end
    with pytest.raises(LookoutError, match=f"{files[stolen].path} is not there any more"):
        _made(store, index, tmp_path / "alone", files[stolen].begin, files[stolen].end)


def test_a_disk_of_the_store_is_not_taken_for_that_of_the_folder(
    store: Store, index: Index, files: Sequence[FileFacts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pread = os.pread

    def broken(file: int, size: int, offset: int) -> bytes:
        if (size, offset) == (files[0].size, 0):  # the whole file, as it is copied
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(file, size, offset)

    monkeypatch.setattr(os, "pread", broken)
    with pytest.raises(LookoutError, match=f"^{files[0].path}: Input/output error"):
        _made(store, index, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_a_tar_is_the_same_folder_also_beside_retention(
    store: Store, index: Index, files: Sequence[FileFacts], tmp_path: Path
) -> None:
    """What goes before its turn is told of as deleted; a file that is being read is read to its end."""
    limits = Rules(max_bytes=files[2].size + 1, continuous_ns=DAY.continuous_ns, events_ns=DAY.events_ns)
    retention = Retention(store, index, limits)
    evidence = Evidence(store, index, _order(0, 1 << 62))
    with (tmp_path / "made.tar").open("wb") as file:
        for number, data in enumerate(tar_of(evidence, "door", 0)):
            file.write(data)
            if number == 1:  # of the first file
                assert retention.run(0, ages=False) == 2
    subprocess.run(["tar", "-xf", "made.tar"], cwd=tmp_path, check=True)
    assert [path.stem[:6] for path in sorted((tmp_path / "door").rglob("*.mp4"))] == ["080001", "080011"]
    assert [(gone.id, gone.expired) for gone in evidence.missing] == [(files[1].id, True)]
    assert "expired" in [gap.cause for gap in evidence.gaps]
    assert check_folder(tmp_path / "door").findings == []


def test_events_of_the_time_are_there(store: Store, index: Index, clips: Path, tmp_path: Path) -> None:
    """Those of the source, by when they began, also if they were written a little later."""
    index.add_file(record(store, clip(clips, "h264"), source="street"))
    clock, first = ManualClock(), frame().captured_at
    clock.advance((first - clock.utc_ns()) / SECOND + 60)
    with Events(tmp_path / "events.sqlite", clock) as rig:
        for seq, source in ((0, "street"), (5, "street"), (6, "yard"), (10, "street"), (20, "street")):
            rig.events.on_event(crossing(seq, source))
        rig.write()
    found = events_of(tmp_path / "events.sqlite", "street", first + SECOND // 2, first + 2 * SECOND)
    assert [row.seq for row in found] == [5, 10]
    order = EvidenceOrder("street", 0, 1 << 62, first, "x", Background(journal=tmp_path / "events.sqlite"))
    write_folder(store, index, order, tmp_path / "out")
    assert len(json.loads((tmp_path / "out" / "events.json").read_bytes())["events"]) == 4
    with closing(sqlite3.connect(tmp_path / "events.sqlite")) as db, db:
        db.execute("UPDATE events SET message = '{' WHERE number = (SELECT max(number) FROM events)")
    for number, name in enumerate(("events.sqlite", "none.sqlite")):  # a damaged row, and no journal at all
        order = EvidenceOrder("street", 0, 1 << 62, first, "x", Background(journal=tmp_path / name))
        write_folder(store, index, order, tmp_path / f"other-{number}")
        told = json.loads((tmp_path / f"other-{number}" / "events.json").read_bytes())
        assert told["events"] is None
        assert "the journal cannot be read" in told["reason"]


def test_nothing_half_is_left(
    store: Store, index: Index, files: Sequence[FileFacts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    part = out.with_name(out.name + PART)
    with pytest.raises(LookoutError, match="nothing is recorded of that time: source_down"):
        _made(store, index, out, files[0].end, files[1].begin)
    part.mkdir()
    with pytest.raises(LookoutError, match=r"out\.part: is there: another export"):
        _made(store, index, out)
    part.rmdir()
    out.mkdir()
    with pytest.raises(LookoutError, match="is there already"):
        _made(store, index, out)
    out.rmdir()
    write, written = os.write, list[int]()

    def interrupted(file: int, data: Any) -> int:
        written.append(file)
        if len(written) == 3:
            raise KeyboardInterrupt
        return write(file, data)

    monkeypatch.setattr(os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _made(store, index, out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


@pytest.mark.needs("mounts")
def test_a_full_disk_leaves_nothing(store: Store, index: Index, files: Sequence[FileFacts], tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={files[0].size * 3 + 8192}", "none", disk], check=True)
    try:
        (disk / "ballast").write_bytes(bytes(files[0].size))
        with pytest.raises(LookoutError, match=r"out cannot be written: it needs .* MB are free"):
            _made(store, index, disk / "out")
        (disk / "ballast").unlink()
        with pytest.raises(LookoutError, match="out cannot be written: No space left"):
            _made(store, index, disk / "out")
        assert [*disk.iterdir()] == []
    finally:
        subprocess.run(["umount", disk], check=True)


# --- keys ------------------------------------------------------------------------------------------------------------


def test_keys_are_those_of_openssl_and_are_kept_secret(tmp_path: Path, evidence: Path, key: SigningKey) -> None:
    path = tmp_path / "openssl.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", path], check=True, capture_output=True)
    path.chmod(0o600)
    made = read_key(path)
    public = tmp_path / "public.pem"
    subprocess.run(["openssl", "pkey", "-in", path, "-pubout", "-out", public], check=True)
    assert read_public_key(public) == made.public_pem
    (evidence.parent / "pub").write_bytes(key.public_pem)
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", "public-key.pem", "-rawin", "-in", "SHA256SUMS",
               "-sigfile", "SHA256SUMS.sig"]  # fmt: skip
    assert b"Success" in subprocess.run(command, cwd=evidence, check=True, capture_output=True).stdout
    subprocess.run(["openssl", "genrsa", "-out", tmp_path / "rsa.pem", "2048"], check=True, capture_output=True)
    (tmp_path / "text.pem").write_text("no key")
    os.mkfifo(tmp_path / "pipe.pem")
    for name in ("rsa.pem", "text.pem", "pipe.pem"):
        (tmp_path / name).chmod(0o600)
    open_to_all = tmp_path / "open.pem"
    open_to_all.write_bytes(path.read_bytes())
    open_to_all.chmod(0o640)
    for name, said in (
        ("rsa.pem", "is no Ed25519 key"), ("text.pem", "is no private key in PEM"), ("pipe.pem", "is no file"),
        ("open.pem", "others may read this key: chmod 600"), ("none.pem", "No such file"),
        ("public.pem", "others may read|is no private key"),
    ):  # fmt: skip
        with pytest.raises(LookoutError, match=said):
            read_key(tmp_path / name)
    with pytest.raises(LookoutError, match="is there already"):
        make_key(path)


# --- commands --------------------------------------------------------------------------------------------------------

_TIMES = ["--from", "2027-01-15T08:00:02Z", "--to", "2027-01-15T08:00:13+00:00"]


def test_commands(store: Store, files: Sequence[FileFacts], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*words: object, code: int = 0) -> tuple[str, str]:
        told = invoke(["recordings", *map(str, words)])
        read = capsys.readouterr()
        assert told == code, read
        return read.out, read.err

    (tmp_path / "config.yaml").write_text(
        "model: {path: model.onnx}\nrecord: {stores: {main: {path: store}}}\n"
        "sources: [{id: door, type: av, url: 'rtsp://me:pa55@192.0.2.1/sub', user: null}]\n"
    )
    out, config = tmp_path / "out", ["-c", tmp_path / "config.yaml"]
    assert "keep it secret" in run("keys", tmp_path / "key.pem")[0]
    told = run("export", "door", out, *_TIMES, *config, "--evidence", "--key", tmp_path / "key.pem")
    assert "not there: " in told[1]
    assert "signed by " in told[0]
    settings = (out / "settings.json").read_text()
    assert "192.0.2.1" in settings
    assert "pa55" not in settings
    shutil.move(store.path, tmp_path / "gone")
    moved = Path(shutil.move(out, tmp_path / "elsewhere"))
    public = ["--public-key", tmp_path / "key.pem.pub"]
    assert "no problems\nsigned by the key that was given" in run("verify", moved, *public)[0]
    assert "give yours with --public-key" in run("verify", moved)[0]
    (moved / "README.txt").write_text("It was me.")
    assert "changed: README.txt: it has 10 bytes" in run("verify", moved, *public, code=1)[0]
    shutil.move(tmp_path / "gone", store.path)
    for words, said in (
        (["export", "door", moved, *_TIMES, *config, "--evidence"], "it is a folder"),
        (["export", "shed", out, *_TIMES, *config, "--evidence"], "no source shed"),
        (["export", "door", out, *_TIMES, *config, "--key", "x"], "--key is for --evidence"),
        (["export", "door", out, *_TIMES, *config, "--evidence", "--key", moved / "README.txt"], "others may read"),
        (["verify", "door", *config, *public], "door cannot be read: No such file"),
        (["verify", moved, "--public-key", tmp_path / "config.yaml"], "is no public key in PEM"),
    ):
        error = run(*words, code=2)[1]
        assert said in error
        assert error.count("\n") == 1, error
    assert "not signed" in run("export", "door", out, *_TIMES, "--store", store.path, "--evidence")[0]
    assert json.loads((out / "settings.json").read_text())["settings"] is None
    assert len(files) == 3
