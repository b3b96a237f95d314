"""`lookout model get` from a real server: resume, checksum, and one clear line per error."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from daemon.cli import invoke
from daemon.commands import catalogue
from daemon.commands.downloads import download
from daemon.errors import LookoutError
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
    assert invoke(["model", "get", "street", "--from", shelf.url, "--to", str(tmp_path / "here")]) == 0
    assert (tmp_path / "here" / "street.onnx").read_bytes() == shelf.content


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/x", "http://no.such.host.invalid/x", "file:///etc/passwd"])
def test_an_unreachable_server_is_reported(url: str, tmp_path: Path) -> None:
    with pytest.raises(LookoutError) as raised:
        download(url.format(port=free_port()), tmp_path / "model.onnx", 5, "0" * 64)
    assert url.partition("{")[0] in str(raised.value)
    assert list(tmp_path.glob("*.onnx")) == []


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
