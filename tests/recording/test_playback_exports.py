"""Evidence over HTTP: the same folder as a tar, for those who may operate, one at a time for each."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.types import Message

from daemon.clock import SystemClock
from daemon.config.load import parse
from daemon.errors import ConfigError
from daemon.playback import exports
from daemon.playback.evidence_settings import NO_SETTINGS, EvidenceSettings, check_key, evidence_settings
from daemon.playback.opened import PlayPlace
from daemon.playback.server import playback
from daemon.recording.evidence.check import check_folder
from daemon.recording.evidence.signing import make_key
from daemon.recording.records import FileFacts
from tests.recording.playback_rig import HTTP, OPERATE, Recorded, recorded
from tests.support.asgi import InProcess, event_loop
from tests.support.events import logged

PATH = "/api/v1/recordings/door/exports"
CONFIG = """
model: {path: model.onnx}
sources: [{id: door, type: av, url: "rtsp://me:pa55@192.0.2.1/sub", options: {rtsp_flags: "s3cret"}}]
"""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, clips: Path) -> Iterator[Recorded]:
    with recorded(tmp_path_factory.mktemp("exports") / "main", clips) as found:
        yield found


@contextmanager
def _served(rig: Recorded, settings: EvidenceSettings = NO_SETTINGS) -> Iterator[InProcess]:
    with event_loop() as loop:
        app = playback(HTTP, [PlayPlace("main", rig.path)], SystemClock(), 60.0, settings)
        yield InProcess(app, loop, OPERATE)


def _body(rig: Recorded, begin: float, end: float, **more: Any) -> dict[str, Any]:
    return {"from": rig.at(begin), "to": rig.at(end), "evidence": True, **more}


def test_it_is_the_folder_that_the_command_writes(rig: Recorded, tmp_path: Path) -> None:
    key = make_key(tmp_path / "key.pem")
    settings = evidence_settings(parse(CONFIG))
    settings = EvidenceSettings(tmp_path / "key.pem", settings.journal, settings.sources)
    before = sorted(rig.path.rglob("*"))
    with _served(rig, settings) as client, logged() as lines:
        answer = client.send("POST", PATH, body=_body(rig, 0, 25))
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-tar")
    name = "door-2027-01-15T080001Z"
    assert answer.headers["content-disposition"] == f'attachment; filename="{name}.tar"'
    (tmp_path / "made.tar").write_bytes(answer.body)
    subprocess.run(["tar", "-xf", "made.tar"], cwd=tmp_path, check=True)
    found = check_folder(tmp_path / name, key.public_pem)
    assert (found.findings, found.is_known, found.source) == ([], True, "door")
    assert len([*(tmp_path / name).rglob("*.mp4")]) == 4
    told = (tmp_path / name / "settings.json").read_text()
    assert "192.0.2.1/sub" in told
    assert "pa55" not in told
    assert "s3cret" not in told
    assert '"made_by": "guard"' in (tmp_path / name / "manifest.json").read_text()
    assert [(line["event"], line["token"], line["signed"]) for line in lines] == [
        ("evidence is exported", "guard", True)
    ]  # fmt: skip
    assert sorted(rig.path.rglob("*")) == before


def test_what_is_refused(rig: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    with _served(rig) as client:
        for body, status, said in (
            (_body(rig, 0, 3601), 400, "more than 3600 s apart"),
            (_body(rig, 3, 0), 400, "to is not later than from"),
            (_body(rig, 0, 3, evidence=False), 422, "evidence is to be true"),
            (_body(rig, 0, 3, signed=True), 422, "unknown field `signed`"),
            (_body(rig, 0, 3, store="other"), 404, "no such store"),
            (_body(rig, 0, 3, store=1), 422, "the body is no export"),
            (_body(rig, 4, 9), 404, "nothing is recorded of that time: source_down"),
        ):
            answer = client.send("POST", PATH, body=body)
            assert (answer.status, said in answer.json["error"]) == (status, True), answer
        assert client.send("POST", f"{PATH}?store=main", body=_body(rig, 0, 3)).status == 400
        assert client.send("POST", PATH.replace("door", "shed"), body=_body(rig, 0, 3)).status == 404
        view = {"Authorization": "Bearer a-token-that-may-view-only"}
        assert client.send("POST", PATH, headers=view, body=_body(rig, 0, 3)).status == 403
        monkeypatch.setattr(exports, "_LARGEST", 1000)
        assert "GiB: ask for less" in client.send("POST", PATH, body=_body(rig, 0, 3)).json["error"]
        monkeypatch.undo()
        assert client.send("POST", PATH, body=_body(rig, 0, 3)).status == 200


def test_one_at_a_time_for_each_token_and_none_for_who_has_left(rig: Recorded) -> None:
    app = playback(HTTP, [PlayPlace("main", rig.path)], SystemClock(), 60.0)
    body = msgspec.json.encode(_body(rig, 0, 25))

    async def ask(leaves: asyncio.Event | None, begun: asyncio.Event) -> int:
        """The status; a client that leaves does so when its answer has begun."""
        headers = [(b"host", b"x"), (b"content-type", b"application/json"),
                   (b"authorization", f"Bearer {OPERATE}".encode())]  # fmt: skip
        scope = {"type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(), "query_string": b"",
                 "headers": headers, "client": ("192.0.2.1", 1), "scheme": "http", "server": None, "root_path": "",
                 "http_version": "1.1", "asgi": {"version": "3.0"}}  # fmt: skip
        incoming: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        status = 0

        async def receive() -> Message:
            if incoming:
                return incoming.pop()
            await (leaves or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            if leaves is not None and message["type"] == "http.response.body":
                begun.set()
                await asyncio.Event().wait()  # it reads no more

        await app(scope, receive, send)
        return status

    async def both() -> None:
        begun, leaves = asyncio.Event(), asyncio.Event()
        first = asyncio.create_task(ask(leaves, begun))
        await asyncio.wait_for(begun.wait(), 60)
        assert await ask(None, begun) == 409
        leaves.set()
        await asyncio.wait_for(first, 60)
        assert await ask(None, begun) == 200

    with event_loop() as loop:
        loop.run_until_complete(both())


def test_what_is_no_recording_any_more_is_told_of_in_the_folder(rig: Recorded, tmp_path: Path) -> None:
    facts: FileFacts = rig.files[1]
    path = rig.path / facts.path
    whole = path.read_bytes()
    path.write_bytes(b"no recording")
    try:
        with _served(rig) as client:
            answer = client.send("POST", PATH, body=_body(rig, 0, 25))
        (tmp_path / "made.tar").write_bytes(answer.body)
        subprocess.run(["tar", "-xf", "made.tar"], cwd=tmp_path, check=True)
        (folder,) = (row for row in tmp_path.iterdir() if row.is_dir())
        findings = check_folder(folder).findings
        assert ("changed", f"video/{facts.path}", facts.begin) in [(row.kind, row.path, row.begin) for row in findings]
    finally:
        path.write_bytes(whole)


def test_a_key_that_cannot_be_used_is_refused(rig: Recorded, tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("no key")
    (tmp_path / "bad.pem").chmod(0o600)
    text = f"{CONFIG}record: {{stores: {{main: {{path: /x}}}}, evidence_key: {tmp_path}/bad.pem}}\n"
    with pytest.raises(ConfigError, match=r"record\.evidence_key: .*bad\.pem: is no private key in PEM"):
        check_key(parse(text))
    check_key(parse(CONFIG))
    with _served(rig, EvidenceSettings(tmp_path / "bad.pem")) as client:
        refused = client.send("POST", PATH, body=_body(rig, 0, 3))
        assert (refused.status, "no private key" in refused.json["error"]) == (503, True)
        assert client.send("GET", "/api/v1/recordings").status == 200
        (tmp_path / "bad.pem").unlink()
        make_key(tmp_path / "bad.pem")
        assert client.send("POST", PATH, body=_body(rig, 0, 3)).status == 200


def test_a_journal_that_takes_too_long_costs_the_events_alone(rig: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "_READ_S", 0.0)
    with _served(rig) as client:
        answer = client.send("POST", PATH, body=_body(rig, 0, 3))
    assert answer.status == 200
    assert b"the journal was not read within" in answer.body
    assert b"/SHA256SUMS" in answer.body
