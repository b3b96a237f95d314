"""A login that a camera refuses is tried rarely: more tries lock the account."""

from __future__ import annotations

import random
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from daemon.capture.timing import Backoff
from daemon.config.sources import AvConfig, ReconnectConfig
from daemon.errors import LoginRefusedError, SourceError
from daemon.redact import Secret, Url
from daemon.sources.ffmpeg import AvSource
from lookout.messages import Status
from tests.daemon.test_capture import EITHER, Run, ScriptedSource
from tests.support.clock import ManualClock
from tests.support.daemon import DEMO_MODEL, Lookout, receive_until, wait_until
from tests.support.hls_server import Answer, HlsServer
from tests.support.rtsp_camera import Camera, RtspCamera, at_rate, pictures_of

REFUSED = LoginRefusedError("401")


def test_tries_are_minutes_apart() -> None:
    backoff = Backoff(ReconnectConfig(jitter=0), random.Random(1))
    assert [backoff.next(refused=True) for _ in range(6)] == [60, 120, 240, 480, 900, 900]
    assert backoff.next() == 0.5
    assert backoff.next(refused=True) == 900
    backoff.reset()
    assert backoff.next(refused=True) == 60


@EITHER
def test_a_source_that_is_refused_is_left_alone(clock: ManualClock, live: bool) -> None:
    """For a minute, and for half a second once it works again."""
    run = Run(ScriptedSource(REFUSED, REFUSED, [1, SourceError("broke")], [2]), clock, live=live)
    assert clock.waits[:3] == [60, 120, 1]
    assert run.said[1] == ("down", "401", 60)


def reason(config: AvConfig) -> str:
    with pytest.raises(LoginRefusedError) as caught:
        AvSource(config).open()
    return str(caught.value)


def config_of(url: str, id: str = "s", word: str = "wrong") -> AvConfig:
    return AvConfig(id=id, url=Url(url), user=Secret("viewer"), password=Secret(word))


@pytest.mark.parametrize(
    ("schemes", "said"),
    [
        (["MD5"], "it refuses the login (401): check user name and password"),
        (["Basic"], "check user name and password"),
        (["SHA-256", "MD5"], "check user name and password"),
        (["SHA-256"], "by Digest with SHA-256, and this FFmpeg knows MD5 alone: set the camera to Digest with MD5"),
        (["MD5", "SHA-256"], "by Digest with SHA-256, and this FFmpeg knows MD5 alone"),
    ],
)
def test_a_password_is_sent_once(schemes: list[str], said: str) -> None:
    """Neither FFmpeg nor the search for a reason tries it again."""
    with RtspCamera(Camera(login=("viewer", "right"), schemes=schemes)) as server:
        assert said in reason(config_of(server.url()))
        assert sum(bool(request.authorization) for request in server.requests) <= 1


@pytest.mark.parametrize("status", [401, 403])
def test_rtsp_that_forbids(status: int) -> None:
    with RtspCamera(Camera(answers={"DESCRIBE": f"{status} No"})) as server:
        assert "check user name and password" in reason(config_of(server.url()))


@pytest.mark.parametrize("path", ["cam.ts", "cam.m3u8"])
@pytest.mark.parametrize("status", [401, 403])
def test_http_that_refuses(status: int, path: str) -> None:
    headers = {"WWW-Authenticate": 'Basic realm="cam"'} if status == 401 else {}
    with HlsServer(lambda _: Answer(status=status, headers=headers)) as server:
        assert "check user name and password" in reason(config_of(server.url(path)))
        assert sum(bool(request.authorization) for request in server.requests) == (status == 401)


def test_http_that_asks_for_another_digest() -> None:
    challenge = 'Digest realm="cam", nonce="1", algorithm=SHA-256'
    with HlsServer(lambda _: Answer(status=401, headers={"WWW-Authenticate": challenge})) as server:
        assert "this FFmpeg knows MD5 alone" in reason(config_of(server.url("cam.ts")))


def test_channels_of_a_recorder_try_a_login_once() -> None:
    """All at the same time: one finds out for all. Each may try again when its own time has come."""
    with RtspCamera(Camera(login=("viewer", "right"))) as server, ThreadPoolExecutor(8) as pool:
        configs = [config_of(server.url(f"ch{number}"), id=f"ch{number}") for number in range(8)]
        reasons = list(pool.map(reason, configs))
        assert sum(bool(request.authorization) for request in server.requests) == 1
        assert sum("its server has just refused this login to ch" in said for said in reasons) == 7
        first = next(config for config, said in zip(configs, reasons) if "is not tried" not in said)
        reason(first)
        assert sum(bool(request.authorization) for request in server.requests) == 2


@pytest.mark.needs("ffmpeg")
def test_channels_of_a_recorder_wait_for_no_login_that_is_good(clip: Path) -> None:
    """Nor does one that may not see its channel keep others from theirs."""
    camera = Camera(at_rate(pictures_of(clip), 15), login=("viewer", "right"))
    with RtspCamera(camera) as server:
        AvSource(config_of(server.url("ch1"), word="right")).open().close()
        server.answer_with({"DESCRIBE": "403 Forbidden"})
        reason(config_of(server.url("ch2"), id="ch2", word="right"))
        server.answer_with({})
        AvSource(config_of(server.url("ch3"), id="ch3", word="right")).open().close()


def test_a_reload_tries_at_once(tmp_path: Path) -> None:
    """In the process that captures."""
    with RtspCamera(Camera(login=("viewer", "right"))) as server:
        source = {"id": "cam", "type": "av", "url": server.url(), "user": "viewer", "password": "wrong"}
        config: dict[str, object] = {
            "sources": [source],
            "model": {"path": str(DEMO_MODEL), "backend": "fake"},
        }
        with Lookout(tmp_path, config) as lookout, lookout.subscribe("status") as subscriber:
            down = receive_until(subscriber, lambda message: isinstance(message, Status) and message.state == "down")[
                -1
            ]
            assert isinstance(down, Status)
            assert 47 < (down.retry_in_s or 0) <= 60
            tries = server.methods().count("DESCRIBE")
            lookout.process.send_signal(signal.SIGHUP)
            wait_until(lambda: server.methods().count("DESCRIBE") > tries, "another try")
            assert lookout.stop() == 0
