"""Who has signed in stays signed in over a restart of the page, and nobody else is."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from daemon.clock import SystemClock
from daemon.config.http import DashboardConfig, TokenConfig
from daemon.dashboard import session_file
from daemon.dashboard.session_file import KeptSession, SessionFile, SessionKeeper
from daemon.dashboard.sessions import Sessions
from daemon.errors import ConfigError
from daemon.peers.addresses import DaemonAddress
from daemon.redact import Secret
from tests.support.clock import ManualClock
from tests.support.daemon import PATIENCE_S
from tests.support.page import Page
from tests.support.websocket import ClosedError

T = TypeVar("T")
_VIEW, _OPERATE = "view-" + "v" * 20, "operate-" + "o" * 20
_NOWHERE = [DaemonAddress("nowhere", "tcp://127.0.0.1:1", None)]
_DAY = 24 * 3600.0


def _tokens(**of_role: str) -> list[TokenConfig]:
    return [TokenConfig(role, role, Secret(text)) for role, text in of_role.items()]  # type: ignore[arg-type]


@contextmanager
def _serving(path: Path) -> Iterator[Page]:
    config = DashboardConfig(tokens=_tokens(view=_VIEW, operate=_OPERATE), sessions=str(path))
    with Page(_NOWHERE, config, awaits=()) as page:
        yield page


def _login(page: Page, token: str) -> str:
    answer = page.client.post("/api/login", json={"token": token})
    assert answer.status_code == 204
    page.client.cookies.clear()
    return str(answer.headers["set-cookie"]).partition(";")[0].partition("=")[2]


def _status(page: Page, value: str) -> int:
    return page.client.get("/api/daemons", headers={"Cookie": f"lookout_{page.port}={value}"}).status_code


def test_a_session_outlives_the_page_until_somebody_signs_out(tmp_path: Path) -> None:
    path = tmp_path / "sessions.json"
    with _serving(path) as page:
        screen, other = _login(page, _VIEW), _login(page, _OPERATE)
    text = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert not any(secret in text for secret in (screen, other, _VIEW, _OPERATE))
    with _serving(path) as page:
        assert [_status(page, value) for value in (screen, other)] == [200, 200]
        cookie = {"cookie": f"lookout_{page.port}={screen}"}
        with (
            page.socket("/api/feed", **cookie) as feed,
            page.socket("/api/live/nowhere/cam", **cookie) as live,
        ):
            assert feed.until("daemon")["name"] == "nowhere"
            assert page.client.post("/api/logout", headers=cookie).status_code == 204
            for socket in (feed, live):  # other tabs, that say nothing
                with pytest.raises(ClosedError, match="1008"):
                    socket.until("nothing that comes")
    with _serving(path) as page:
        assert [_status(page, value) for value in (screen, other)] == [401, 200]
        # The disk does not take it: the session is over, and whoever signs out is told that it may come back.
        path.unlink()
        path.mkdir()
        answer = page.client.post("/api/logout", headers={"Cookie": f"lookout_{page.port}={other}"})
        assert (answer.status_code, "did not take it" in answer.text) == (503, True)
        assert _status(page, other) == 401


def test_cookies_that_are_forged_cut_or_of_others_open_nothing(tmp_path: Path) -> None:
    path = tmp_path / "sessions.json"
    with _serving(path) as page:
        value = _login(page, _VIEW)
        (row,) = json.loads(path.read_text())["sessions"]
        for wrong in (
            "",
            value[:-1],
            value + "A",
            value.swapcase(),
            row["key"],
            row["proof"],
            "A" * 43,
            "%00",
            "é" * 43,
        ):
            header = {b"Cookie": f"lookout_{page.port}={wrong}".encode()}
            assert page.client.get("/api/daemons", headers=header).status_code == 401, wrong
        assert _status(page, value) == 200
    # Who can write the file, and has no token, makes no session of it.
    key = "5e884898da28047151d0e56f8dc6292773603d0d6aabbd62a11ef721d1542d8"  # SHA-256 of "password", less a digit
    forged = {**row, "key": key + "8", "name": "operate"}
    path.write_text(json.dumps({"version": 1, "sessions": [row, forged]}))
    path.chmod(0o600)
    with _serving(path) as page:
        assert [_status(page, one) for one in ("password", value)] == [401, 200]


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


@contextmanager
def _sessions(path: Path, clock: ManualClock | None = None, **of_role: str) -> Iterator[Sessions]:
    config = DashboardConfig(tokens=_tokens(**(of_role or {"view": _VIEW, "operate": _OPERATE})), sessions=str(path))
    with closing(Sessions(config, clock or ManualClock())) as found:
        yield found


def _role(sessions: Sessions, cookie: str) -> str | None:
    person = sessions.person(cookie)
    return person.role if person else None


def test_a_token_that_is_changed_or_gone_ends_its_sessions(tmp_path: Path) -> None:
    path = tmp_path / "sessions.json"
    with _sessions(path) as sessions:
        cookies = [_run(sessions.login(token, "peer")) or "" for token in (_VIEW, _OPERATE)]
        assert [_role(sessions, cookie) for cookie in cookies] == ["view", "operate"]
    with _sessions(path, view=_VIEW, operate="another-" + "o" * 20) as sessions:
        assert [_role(sessions, cookie) for cookie in cookies] == ["view", None]
    with _sessions(path, operate=_OPERATE) as sessions:
        assert [_role(sessions, cookie) for cookie in cookies] == [None, "operate"]
    renamed = [TokenConfig("view", "operate", Secret(_VIEW)), TokenConfig("operate", "view", Secret(_OPERATE))]
    with closing(Sessions(DashboardConfig(tokens=renamed, sessions=str(path)), ManualClock())) as sessions:
        assert [_role(sessions, cookie) for cookie in cookies] == ["operate", "view"]  # roles are those of now


def test_old_sessions_end_whatever_the_clock_says(tmp_path: Path) -> None:
    path, clock = tmp_path / "sessions.json", ManualClock()
    with _sessions(path, clock) as sessions:
        cookie = _run(sessions.login(_VIEW, "peer")) or ""
        clock.step(-40 * _DAY)  # while it runs: nobody is signed out, and no session gets longer
        clock.advance(29 * _DAY)
        assert _role(sessions, cookie) == "view"
        clock.advance(29 * _DAY)
        assert _role(sessions, cookie) == "view"
        clock.advance(31 * _DAY)
        assert _role(sessions, cookie) is None
        cookie = _run(sessions.login(_VIEW, "peer")) or ""
        for _ in range(36):
            clock.advance(10 * _DAY)
            assert _role(sessions, cookie) == "view"
        clock.advance(10 * _DAY)
        assert _role(sessions, cookie) is None  # a year at most
    path.unlink()
    clock = ManualClock()
    with _sessions(path, clock) as sessions:
        cookie = _run(sessions.login(_VIEW, "peer")) or ""
    clock.step(-2 * _DAY)
    with _sessions(path, clock) as sessions:
        assert _role(sessions, cookie) is None
        clock.step(2 * _DAY)  # a machine without a clock of its own, which asks for the time later
        assert _role(sessions, cookie) == "view"


def test_sessions_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "sessions.json"
    many = {f"t{number}": f"token-number-{number:09}" for number in range(6)}
    tokens = [TokenConfig(name, "view", Secret(text)) for name, text in many.items()]

    async def log_in(sessions: Sessions) -> None:
        operator = await sessions.login(many["t0"], "peer") or ""
        for _ in range(300):
            await sessions.login(many["t1"], "peer")
        assert sessions.person(operator) is not None  # others' sessions are not in the way
        for name in ("t2", "t3", "t4", "t5"):
            for _ in range(250):
                await sessions.login(many[name], "peer")

    with closing(Sessions(DashboardConfig(tokens=tokens, sessions="off"), ManualClock())) as sessions:
        _run(log_in(sessions))
        assert len(sessions._sessions) == 1000
    assert not path.exists()


def test_a_file_that_others_could_have_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sessions.json"
    with _sessions(path) as sessions:
        cookie = _run(sessions.login(_VIEW, "peer")) or ""
        with pytest.raises(ConfigError, match="is another page's"), _sessions(path):
            pass
    path.chmod(0o644)
    with (
        pytest.raises(ConfigError, match=r"sessions: .*sessions\.json may be read or written by others"),
        _sessions(path),
    ):
        pass
    path.chmod(0o600)
    with monkeypatch.context() as patch:
        owner = os.geteuid()
        patch.setattr(os, "geteuid", lambda: owner + 1)
        with pytest.raises(ConfigError, match=f"belongs to the user {owner}"), _sessions(path):
            pass
    with _sessions(path) as sessions:
        assert _role(sessions, cookie) == "view"  # it is as it was
    path.rename(tmp_path / "other.json")
    path.symlink_to(tmp_path / "other.json")
    with pytest.raises(ConfigError, match="cannot be read"), _sessions(path):
        pass
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(ConfigError, match="is no file of sessions"), _sessions(path):
        pass
    path.unlink()
    path.write_text('{"version": 1, "sessions": [{"key"')
    path.chmod(0o600)
    with _sessions(path) as sessions:
        assert _run(sessions.login(_VIEW, "peer"))
    assert len(json.loads(path.read_text())["sessions"]) == 1
    with pytest.raises(ConfigError, match="cannot be kept: No such file"), _sessions(tmp_path / "none" / "x.json"):
        pass


def test_state_of_a_service_keeps_sessions_unless_it_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    for sessions, wanted in (("off", []), ("auto", ["sessions-9106.json"])):
        with closing(Sessions(DashboardConfig(tokens=_tokens(view=_VIEW), sessions=sessions), SystemClock())) as found:
            _run(found.login(_VIEW, "peer"))
        assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")) == wanted


class _HangingDisk(SessionFile):
    """Takes nothing until it is let go."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.let_go = threading.Event()
        self.written: list[int] = []

    def write(self, rows: Sequence[KeptSession]) -> None:
        assert self.let_go.wait(PATIENCE_S)
        self.written.append(len(rows))
        super().write(rows)


def test_a_disk_that_hangs_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_file, "_WRITE_S", 0.05)
    disk = _HangingDisk(tmp_path / "sessions.json")
    keeper = SessionKeeper(disk)
    rows = [KeptSession("0" * 64, "view", "1" * 64, 0, 0)] * 3

    async def keep() -> None:
        threads = threading.active_count()
        assert not await keeper.keep(rows[:1], ending=False)
        late = [asyncio.ensure_future(keeper.keep(rows[:number], ending=False)) for number in (1, 2, 3)]
        assert not any(await asyncio.gather(*late))
        assert threading.active_count() <= threads + 1  # however many wait
        monkeypatch.setattr(session_file, "_WRITE_S", PATIENCE_S)
        disk.let_go.set()
        assert await keeper.keep(rows, ending=True)

    with closing(keeper):
        _run(keep())
    assert disk.written[-1] == 3
    assert len(disk.written) <= 3  # states that nobody wants any more are not written
