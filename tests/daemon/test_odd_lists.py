"""HLS and redirects that are odd: holes, lists without end, servers that begin to count anew."""

from __future__ import annotations

import re
import socket
from collections import deque
from contextlib import closing

import pytest

from daemon.config.sources import AvConfig
from daemon.errors import DecodeError, SourceError
from daemon.redact import Secret, Url
from daemon.sources.ffmpeg import AvSource
from daemon.sources.port import next_picture
from tests.support.hls_server import Answer, HlsServer, Request, playlist, segments

pytestmark = pytest.mark.needs("ffmpeg")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Ten segments of four pictures."""
    return segments(tmp_path_factory.mktemp("hls") / "plain", 10)


def config_of(url: str, *, kind: str = "recording", **options: str) -> AvConfig:
    secrets = {key: Secret(value) for key, value in options.items()}
    return AvConfig(id="s", url=Url(url), kind=kind, options=secrets, read_timeout_s=2)  # type: ignore[arg-type]


def counted_anew(segment: bytes) -> bytes:
    """A segment whose transport stream begins to count its packets anew, as that of another program run does."""
    data, counts = bytearray(segment), dict[int, int]()
    for at in range(0, len(data), 188):
        pid = int.from_bytes(data[at + 1 : at + 3], "big") & 0x1FFF
        counts[pid] = counts.get(pid, -1) + (data[at + 3] >> 4 & 1)
        data[at + 3] = data[at + 3] & 0xF0 | counts[pid] & 0xF
    return bytes(data)


def outcome(config: AvConfig) -> tuple[int, dict[str, int], str | None]:
    """How many pictures a recording has, the causes of what is dropped, and why it ends early."""
    dropped: dict[str, int] = {}
    count = 0
    with closing(AvSource(config).open()) as reader:
        while True:
            try:
                picture = next_picture(reader)
                if picture is None:
                    return count, dropped, None
                picture.load()
                count += 1
            except DecodeError as error:
                dropped[error.cause] = dropped.get(error.cause, 0) + 1
            except SourceError as error:
                return count, dropped, str(error)


def test_the_last_picture_of_a_segment_is_whole(parts: list[bytes]) -> None:
    """Wherever the next one begins to count; FFmpeg calls it damaged."""
    anew = [counted_anew(part) for part in parts[:5]]
    lines = [f"{number}.ts" for number in range(5)]

    def answer(request: Request) -> Answer:
        return Answer(playlist(*lines, complete=True) if "m3u8" in request.path else anew[int(request.path[1])])

    with HlsServer(answer) as server:
        assert outcome(config_of(server.url("live.m3u8"))) == (20, {}, None)


@pytest.mark.parametrize(
    "bad",
    [Answer(status=404), Answer(status=302, headers={"Location": "rtsp://127.0.0.1:1/x"}), "cut"],
    ids=["gone", "elsewhere", "cut"],
)
def test_a_recording_without_one_of_its_segments_is_not_whole(bad: Answer | str, parts: list[bytes]) -> None:
    cut = Answer(parts[1][: len(parts[1]) // 2], headers={"Content-Length": str(len(parts[1]))})

    def answer(request: Request) -> Answer:
        if "m3u8" in request.path:
            return Answer(playlist("0.ts", "1.ts", "2.ts", complete=True))
        return (
            (bad if isinstance(bad, Answer) else cut)
            if request.path == "/1.ts"
            else Answer(parts[int(request.path[1])])
        )

    with HlsServer(answer) as server:
        count, _, reason = outcome(config_of(server.url("live.m3u8")))
    assert 7 <= count < 12
    assert reason
    assert "cut short" in reason
    assert reason.endswith("segments of its playlist could not be loaded: 1")


def test_lists_that_name_each_other_end() -> None:
    with HlsServer(lambda _: Answer("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nlive.m3u8\n")) as server:
        with pytest.raises(SourceError, match="names playlists, and these name others: give the URL of the last"):
            AvSource(config_of(server.url("live.m3u8"))).open()
        assert len(server.requests) < 20


def test_a_live_list_that_counts_anew_is_read_from_there(parts: list[bytes]) -> None:
    """Its server has begun again; FFmpeg would wait for the number that it had. An old list is none."""
    state = {"first": 1000, "old": 0}

    def answer(request: Request) -> Answer:
        if "m3u8" not in request.path:
            return Answer(parts[int(request.path[1])])
        state["first"] += 1
        first = state["first"] if state["first"] < 1004 else state["first"] - 1004
        if state["first"] == 1003 and not state["old"]:  # another of its servers is late
            state["old"], state["first"] = 1, 1002
            first = 1001
        return Answer(playlist(*(f"{(first + n) % 10}.ts" for n in range(3)), first=first))

    with HlsServer(answer) as server:
        source = AvSource(config_of(server.url("live.m3u8"), kind="live"))
        says = "begins anew, with segment 0 after 1003"
        with closing(source.open()) as reader, pytest.raises(SourceError, match=says):
            deque(iter(lambda: next_picture(reader), None), maxlen=0)
        with closing(source.open()) as reader:
            assert all(next_picture(reader) for _ in range(12))


def test_a_live_list_that_stands_still_is_given_up(parts: list[bytes]) -> None:
    with (
        HlsServer(lambda request: Answer(playlist("0.ts") if "m3u8" in request.path else parts[0])) as server,
        closing(AvSource(config_of(server.url("live.m3u8"), kind="live")).open()) as reader,
        pytest.raises(SourceError, match=r"its playlist names no new segment, for [34] s"),
    ):
        deque(iter(lambda: next_picture(reader), None), maxlen=0)


@pytest.mark.parametrize("location", ["rtsp://{}/x", "file:///etc/hostname", "ftp://{}/x"])
def test_a_redirect_to_another_protocol_is_not_followed(location: str) -> None:
    """However many may be."""
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.setblocking(False)
        target = location.format(f"127.0.0.1:{elsewhere.getsockname()[1]}")
        with (
            HlsServer(lambda _: Answer(status=302, headers={"Location": target})) as server,
            pytest.raises(SourceError, match=f"it redirects to {re.escape(target)}, which is not followed: set url"),
        ):
            AvSource(config_of(server.url("cam"), max_redirects="5")).open()
        with pytest.raises(BlockingIOError):
            elsewhere.accept()


def test_redirects_without_end() -> None:
    def answer(request: Request) -> Answer:
        return Answer(status=307, headers={"Location": f"{request.path}x"})

    with HlsServer(answer) as server:
        with pytest.raises(SourceError, match="it redirects to /camx, which leads nowhere in 3 redirects"):
            AvSource(config_of(server.url("cam"), max_redirects="3")).open()
        assert len(server.requests) < 8


def test_a_list_with_an_address_that_is_none(parts: list[bytes]) -> None:
    def answer(request: Request) -> Answer:
        return Answer(playlist("http://[x/0.ts", "1.ts", complete=True) if "m3u8" in request.path else parts[1])

    with HlsServer(answer) as server:
        assert outcome(config_of(server.url("live.m3u8"))) == (4, {}, None)
