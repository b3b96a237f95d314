"""Which daemons the page shows, from the command line and from configurations; and what is wrong, in one line."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from daemon.cli import invoke
from daemon.config.load import load_page
from daemon.config.root import PageConfig
from daemon.errors import ConfigError
from daemon.peers.addresses import addresses_of
from daemon.redact import Secret
from lookout.packets import reachable
from tests.support.ports import free_port

_SOURCES = "model: {path: m.onnx}\nsources: [{id: s, type: synthetic}]\n"


def _found(tmp_path: Path, text: str, *arguments: str, token: str | None = None) -> list[tuple[str, object, object]]:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    rows = addresses_of(load_page(file) if text else None, arguments, Secret(token) if token else None)
    return [(row.name, row.endpoint, row.http) for row in rows]


def test_the_command_line(tmp_path: Path) -> None:
    arguments = (
        "http://10.0.0.7:9105",
        "yard=tcp://10.0.0.8:5556,http://10.0.0.8:9105",
        "ipc:///run/x",
        "tcp://10.0.0.7:1",
    )
    assert _found(tmp_path, "", *arguments) == [
        ("10.0.0.7", None, "http://10.0.0.7:9105"),
        ("yard", "tcp://10.0.0.8:5556", "http://10.0.0.8:9105"),
        ("daemon", "ipc:///run/x", None),
        ("10.0.0.7-2", "tcp://10.0.0.7:1", None),
    ]


def test_the_configurations_own_daemon(tmp_path: Path) -> None:
    http = "http: {enabled: true, host: 0.0.0.0, token: aaaaaaaaaaaaaaaaaaaa}\n"
    assert _found(tmp_path, _SOURCES + http) == [("here", "tcp://127.0.0.1:5556", "http://127.0.0.1:9105")]
    assert _found(tmp_path, _SOURCES) == [("here", "tcp://127.0.0.1:5556", None)]
    free = "publisher: {endpoint: 'tcp://127.0.0.1:*'}\n"
    assert _found(tmp_path, _SOURCES + http + free) == [("here", None, "http://127.0.0.1:9105")]
    with pytest.raises(ConfigError, match="no fixed port"):
        _found(tmp_path, _SOURCES + free)


def test_a_file_for_the_page_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALL", "b" * 20)
    text = "dashboard:\n  daemons:\n    - {name: hall, http: 'http://hall:9105', token: '${HALL}'}\n"
    assert _found(tmp_path, text) == [("hall", None, "http://hall:9105")]
    assert isinstance(load_page(tmp_path / "config.yaml"), PageConfig)
    with pytest.raises(ConfigError, match=r"dashboard\.host: 0\.0\.0\.0 can be reached"):
        _found(tmp_path, text + "  host: 0.0.0.0\n")
    with pytest.raises(ConfigError, match="used twice"):
        _found(tmp_path, text + "    - {name: hall, endpoint: 'tcp://a:1'}\n")
    with pytest.raises(ConfigError, match="set endpoint, http, or both"):
        _found(tmp_path, "dashboard: {daemons: [{name: a}]}\n")
    with pytest.raises(ConfigError, match=r"dashboard\.daemons: is empty"):
        _found(tmp_path, "dashboard: {}\n")


def test_paths_of_a_page_s_own_file_are_of_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "page.yaml"
    file.write_text(
        "log: {file: page.log}\n"
        "dashboard: {tls_certificate: c.pem, tls_key: k.pem, tokens: [{name: a, token_file: t}],\n"
        "  daemons: [{name: hall, http: 'http://hall:9105', token_file: hall.token}]}\n"
    )
    found = load_page(file)
    page = found.dashboard
    own = found.log.file, page.tls_certificate, page.tls_key, page.tokens[0].token_file, page.daemons[0].token_file
    assert own == tuple(tmp_path / name for name in ("page.log", "c.pem", "k.pem", "t", "hall.token"))


@pytest.mark.parametrize(
    "text",
    ["ftp://a", "http://", "http://u:p@a:1", "http://a:b", "http://a/x", "tcp://a", "tcp://a:0", "a b=tcp://c:1"],
)
def test_what_is_no_address_is_refused_in_one_line(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke(["dashboard", text]) == 2
    error = capsys.readouterr().err
    assert error.startswith("lookout: ")
    assert error.count("\n") == 1
    assert "u:p" not in error


def test_a_port_in_use_and_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        assert invoke(["dashboard", "tcp://127.0.0.1:1", "--port", str(port)]) == 2
        assert "dashboard: cannot bind" in capsys.readouterr().err
    assert invoke(["dashboard", "-c", str(tmp_path / "none.yaml")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_a_wildcard_is_the_host_that_was_reached() -> None:
    assert reachable("tcp://0.0.0.0:5557", "http://10.0.0.7:9105") == "tcp://10.0.0.7:5557"
    assert reachable("tcp://*:5557", "tcp://hall:5556") == "tcp://hall:5557"
    assert reachable("tcp://10.0.0.9:5557", "http://10.0.0.7:9105") == "tcp://10.0.0.9:5557"
    assert reachable("ipc:///run/x.packets", None) == "ipc:///run/x.packets"
