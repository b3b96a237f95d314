"""`lookout model get` from a real server: resume, checksum, and one clear line per error."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import onnx
import pytest

from daemon.cli import invoke
from daemon.commands import catalogue
from daemon.commands.downloads import download
from daemon.commands.model import choose
from daemon.errors import LookoutError
from daemon.system.paths import demo_model
from detectors import labels as known_labels
from detectors.factory import open_detector
from detectors.port import Options
from tests.support.clock import ManualClock
from tests.support.daemon import DEMO_MODEL
from tests.support.ports import free_port


@dataclass
class Shelf:
    """A server with one file.

    Attributes:
        breaks_after: hang up after this many bytes of an answer; None for never.
        ranges: whether it supports them.
        asked: the Range header of each request.
    """

    content: bytes
    breaks_after: int | None = None
    ranges: bool = True
    asked: list[str | None] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    shelf = Shelf(DEMO_MODEL.read_bytes())

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            shelf.asked.append(wanted)
            begin = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and shelf.ranges else 0
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(len(shelf.content) - begin))
            self.end_headers()
            self.wfile.write(shelf.content[begin:][: shelf.breaks_after])

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    shelf.url = f"http://127.0.0.1:{server.server_port}/demo.onnx"
    yield shelf
    server.shutdown()
    server.server_close()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def known(shelf: Shelf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> catalogue.CatalogueEntry:
    """The server's file in the catalogue, as `street`."""
    entry = catalogue.CatalogueEntry(
        "street", shelf.url, len(shelf.content), _digest(shelf.content), "MIT", (320, 192), 0.0, "tests"
    )
    monkeypatch.setattr(catalogue, "CATALOGUE", (entry,))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return entry


def test_a_model_is_fetched_once_and_verified(
    known: catalogue.CatalogueEntry, shelf: Shelf, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["model", "get", "street"]) == 0
    path = catalogue.path_of(known)
    assert path.read_bytes() == shelf.content
    assert "licence MIT" in capsys.readouterr().out
    assert invoke(["model", "get", "street"]) == 0
    assert len(shelf.asked) == 1
    assert [file.name for file in path.parent.iterdir() if file.name.endswith(".part")] == []


def test_a_download_is_resumed(
    known: catalogue.CatalogueEntry, shelf: Shelf, capsys: pytest.CaptureFixture[str]
) -> None:
    shelf.breaks_after = 50_000
    assert invoke(["model", "get", "street"]) == 2
    assert "try again to resume" in capsys.readouterr().err
    shelf.breaks_after = None
    assert invoke(["model", "get", "street"]) == 0
    assert shelf.asked == [None, "bytes=50000-"]
    assert catalogue.path_of(known).read_bytes() == shelf.content


def test_a_server_without_ranges_sends_the_complete_file(known: catalogue.CatalogueEntry, shelf: Shelf) -> None:
    shelf.breaks_after, shelf.ranges = 50_000, False
    assert invoke(["model", "get", "street"]) == 2
    shelf.breaks_after = None
    assert invoke(["model", "get", "street"]) == 0
    assert catalogue.path_of(known).read_bytes() == shelf.content


@pytest.mark.parametrize("change", [lambda content: content[:-1] + b"!", lambda content: content + b"!"])
def test_unexpected_content_is_refused_and_not_kept(
    known: catalogue.CatalogueEntry, shelf: Shelf, change: object, capsys: pytest.CaptureFixture[str]
) -> None:
    shelf.content = change(shelf.content)  # type: ignore[operator]
    assert invoke(["model", "get", "street"]) == 2
    output = capsys.readouterr().err
    assert output.count("\n") == 1
    assert "has unexpected content" in output or "it is another file" in output
    assert not catalogue.path_of(known).exists()


def test_a_mirror_is_used(
    known: catalogue.CatalogueEntry, shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = catalogue.CatalogueEntry("street", f"http://127.0.0.1:{free_port()}/x", known.size, known.sha256, "MIT",
                                    (320, 192), 0.0, "tests")  # fmt: skip
    monkeypatch.setattr(catalogue, "CATALOGUE", (gone,))
    assert invoke(["model", "get", "street"]) == 2
    assert invoke(["model", "get", "street", "--from", shelf.url, "--out", str(tmp_path / "here")]) == 0
    assert (tmp_path / "here" / "street.onnx").read_bytes() == shelf.content


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/x", "http://no.such.host.invalid/x", "file:///etc/passwd"])
def test_an_unreachable_server_is_reported(url: str, tmp_path: Path) -> None:
    with pytest.raises(LookoutError) as raised:
        download(url.format(port=free_port()), tmp_path / "model.onnx", 5, "0" * 64)
    assert url.partition("{")[0] in str(raised.value)
    assert list(tmp_path.glob("*.onnx")) == []


@pytest.mark.parametrize("form", ["{path}", "file://{path}", "FILE://{path}"])
def test_a_file_that_was_fetched_elsewhere_is_taken(
    known: catalogue.CatalogueEntry, shelf: Shelf, form: str, tmp_path: Path
) -> None:
    """And verified like any other."""
    carried = tmp_path / "carried.onnx"
    carried.write_bytes(shelf.content)
    assert invoke(["model", "get", known.name, "--from", form.format(path=carried)]) == 0
    assert catalogue.path_of(known).read_bytes() == shelf.content
    assert shelf.asked == []


def test_a_model_is_known_whatever_its_file_is_called(
    known: catalogue.CatalogueEntry, shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its labels are those of the catalogue: a file that was carried here is as good as one that was fetched."""
    named = replace(known, labels="street.txt")
    monkeypatch.setattr(catalogue, "CATALOGUE", (named,))
    carried = tmp_path / "carried.onnx"
    carried.write_bytes(shelf.content)
    assert choose(str(carried)).labels == choose(known.name).labels == "street.txt"
    carried.write_bytes(shelf.content[:-1] + b"!")
    assert choose(str(carried)).labels is None


def test_a_detector_knows_the_labels_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that has none, where a configuration names it by its path."""
    model, path, labels = onnx.load(DEMO_MODEL), tmp_path / "model.onnx", tmp_path / "labels.txt"
    (names,) = [entry for entry in model.metadata_props if entry.key == "names"]
    model.metadata_props.remove(names)
    onnx.save(model, path)
    labels.write_text("walker\nrider\ndriver\n")
    monkeypatch.setattr(known_labels, "KNOWN_FILES", {(_digest(path.read_bytes()), path.stat().st_size): str(labels)})
    monkeypatch.setattr(known_labels, "KNOWN_SIZES", {path.stat().st_size})
    with closing(open_detector("cpu", Options(path))) as detector:
        assert detector.info.labels == ("walker", "rider", "driver")


def test_the_labels_of_the_catalogue_are_known_to_every_command() -> None:
    known = {(entry.sha256, entry.size): entry.labels for entry in catalogue.CATALOGUE if entry.labels}
    assert known == known_labels.KNOWN_FILES


def test_without_a_network_the_model_that_comes_with_lookout_is_offered(
    known: catalogue.CatalogueEntry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    away = replace(known, url=f"http://127.0.0.1:{free_port()}/x")
    monkeypatch.setattr(catalogue, "CATALOGUE", (away,))
    assert invoke(["run", "rtsp://192.0.2.7/", "--model", known.name]) == 2
    assert "--model demo" in capsys.readouterr().err.splitlines()[-1]
    assert choose("demo").path == demo_model()
    assert invoke(["model", "get", "demo"]) == 0


@pytest.mark.parametrize("name", [".street.onnx.part", ".street.onnx.lock"])
@pytest.mark.parametrize("kind", ["link", "second name", "pipe"])
def test_what_another_has_put_into_the_cache_is_left_alone(
    known: catalogue.CatalogueEntry, name: str, kind: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    place = catalogue.path_of(known).with_name(name)
    place.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(place)
    else:
        (place.symlink_to if kind == "link" else place.hardlink_to)(victim)
    assert invoke(["model", "get", known.name]) == 2
    assert f"{place} is" in capsys.readouterr().err
    assert victim.read_text() == "precious"


def test_a_server_that_drips_is_given_up(tmp_path: Path) -> None:
    """What came is kept, and the next time goes on from there."""
    clock, sent = ManualClock(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nonly this")
                sent.wait(60)

        threading.Thread(target=drip, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/model.onnx"
        progress = [0]

        def note(have: int) -> None:
            progress.append(have)
            if have:
                clock.advance(61)

        with pytest.raises(LookoutError, match="fewer than 1,024 bytes a second; try again to resume"):
            download(url, tmp_path / "model.onnx", 1_000_000, "0" * 64, note, clock)
        sent.set()
    assert (tmp_path / ".model.onnx.part").read_bytes() == b"only this"


@pytest.mark.parametrize("answer", [b"\x1b[31m\x07 garbage\r\n\r\n", b"HTTP/1.1 500 \x1b[31m\x07red\r\n\r\n"])
def test_nothing_of_an_answer_controls_the_terminal(
    answer: bytes, known: catalogue.CatalogueEntry, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/model.onnx"
        assert invoke(["model", "get", known.name, "--from", url]) == 2
    said = capsys.readouterr()
    assert not {"\x1b", "\x07"} & set(said.out + said.err)
    assert said.err.count("\n") == 1


def test_a_mirror_s_password_is_not_shown(known: catalogue.CatalogueEntry, capsys: pytest.CaptureFixture[str]) -> None:
    mirror = f"http://me:hunter2@127.0.0.1:{free_port()}/{known.name}.onnx?token=hunter3"
    assert invoke(["model", "get", known.name, "--from", mirror]) == 2
    output = capsys.readouterr()
    assert "hunter" not in output.out + output.err
    assert "127.0.0.1" in output.err


def test_concurrent_downloads_fetch_once(known: catalogue.CatalogueEntry, shelf: Shelf, tmp_path: Path) -> None:
    path = tmp_path / "both.onnx"
    threads = [threading.Thread(target=download, args=(shelf.url, path, known.size, known.sha256)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert path.read_bytes() == shelf.content
    assert len(shelf.asked) == 1


def test_a_restrictive_licence_must_be_accepted(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = catalogue.CatalogueEntry("copyleft", shelf.url, len(shelf.content), _digest(shelf.content), "AGPL-3.0",
                                     (320, 192), 0.0, "tests")  # fmt: skip
    monkeypatch.setattr(catalogue, "CATALOGUE", (entry,))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert invoke(["model", "get", "copyleft"]) == 2
    assert "AGPL-3.0" in capsys.readouterr().err
    assert shelf.asked == []
    assert invoke(["run", "0", "--model", "copyleft"]) == 2
    assert shelf.asked == []
    assert invoke(["model", "get", "copyleft", "--accept-licence"]) == 0


def test_the_catalogue_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["model", "list"]) == 0
    output = capsys.readouterr().out
    for entry in catalogue.CATALOGUE:
        assert entry.name in output
        assert entry.url.startswith("https://github.com/")
        assert (len(entry.sha256), entry.size > 1_000_000, entry.licence != "") == (64, True, True)
    assert len({entry.name for entry in catalogue.CATALOGUE}) == len(catalogue.CATALOGUE)


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["model", "get", "yolo99"]) == 2
    assert "it has yolox_nano" in capsys.readouterr().err


def test_info_shows_a_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert invoke(["model", "info", str(DEMO_MODEL)]) == 0
    output = capsys.readouterr().out
    assert "yolov8" in output
    assert "person, car, bus" in output
    (tmp_path / "text.onnx").write_text("no model")
    assert invoke(["model", "info", str(tmp_path / "text.onnx")]) == 2


def test_an_export_without_its_package_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["model", "export", str(tmp_path / "none.pt")]) == 2
    assert "is not a file" in capsys.readouterr().err
    (tmp_path / "weights.pt").write_bytes(b"")
    assert invoke(["model", "export", str(tmp_path / "weights.pt")]) == 2
    assert "pip install ultralytics" in capsys.readouterr().err
