"""HLS: what each server gets to know, and a live list that is late, has holes, begins anew and ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from daemon.config.sources import AvConfig
from daemon.errors import SourceError
from daemon.redact import Secret, Url
from daemon.sources.ffmpeg import AvReader, AvSource
from daemon.sources.port import next_picture
from tests.support import clips
from tests.support.hls_server import Answer, HlsServer, Request, playlist, segments

pytestmark = pytest.mark.needs("ffmpeg")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Twelve segments of four pictures."""
    return segments(tmp_path_factory.mktemp("hls") / "plain", 12)


def pictures(reader: AvReader) -> Iterator[float]:
    """The time of each picture, seconds."""
    while picture := next_picture(reader):
        assert picture.pts is not None
        yield picture.pts / 1e9


def config_of(url: str, *, kind: str = "recording", **options: str) -> AvConfig:
    secrets = {key: Secret(value) for key, value in options.items()}
    return AvConfig(id="s", url=Url(url), kind=kind, options=secrets, read_timeout_s=2)  # type: ignore[arg-type]


def read(config: AvConfig) -> int:
    with closing(AvSource(config).open()) as reader:
        return sum(1 for _ in pictures(reader))


def until_end(reader: AvReader) -> list[float]:
    """The time of each picture of a live list, until it is complete."""
    times: list[float] = []
    with pytest.raises(SourceError, match="has ended: its playlist is complete"):
        times.extend(pictures(reader))
    return times


# --- what each server gets to know -----------------------------------------------------------------------------------

HEADERS = "Authorization: Bearer s3cret\r\nX-Api-Key: s3cret\r\n"


def test_headers_cookies_and_login_stay_with_the_server_of_the_list(parts: list[bytes]) -> None:
    """A list of one host may name segments of another."""
    with HlsServer(lambda _: Answer(parts[1])) as other:

        def answer(request: Request) -> Answer:
            if request.path == "/live.m3u8":
                lines = ["own.ts", other.url("a.ts"), other.url("b.ts"), "own2.ts"]
                return Answer(playlist(*lines, complete=True), headers={"Set-Cookie": "session=s3cret; path=/"})
            return Answer(parts[0])

        with HlsServer(answer) as camera:
            config = config_of(camera.url("live.m3u8", "me:s3cret"), headers=HEADERS, cookies="id=s3cret; path=/")
            assert read(config) == 16
        assert {"/own.ts", "/own2.ts"} <= set(camera.paths())
        assert {"/a.ts", "/b.ts"} == set(other.paths())
        assert all("s3cret" not in " ".join(request.headers.values()) for request in other.requests)
        assert all(request.headers.get("x-api-key") == "s3cret" for request in camera.requests)
        assert "session=s3cret" in camera.requests[-1].cookie


def test_keys_of_another_server_are_fetched_without_credentials(tmp_path: Path) -> None:
    """And segments are deciphered; those of the source's own server get its headers."""
    (tmp_path / "key").write_bytes(b"0123456789abcdef")
    (tmp_path / "info").write_text(f"key\n{tmp_path / 'key'}\n00000000000000000000000000000000\n")
    coded = segments(tmp_path / "coded", 2, tmp_path / "info")
    with HlsServer(lambda _: Answer(b"0123456789abcdef")) as other:

        def answer(request: Request) -> Answer:
            if request.path == "/live.m3u8":
                key = f'#EXT-X-KEY:METHOD=AES-128,URI="{other.url("key")}",IV=0x00000000000000000000000000000000'
                return Answer(playlist(key, "0.ts", "1.ts", complete=True))
            return Answer(coded[int(request.path[1:-3])])

        with HlsServer(answer) as camera:
            assert read(config_of(camera.url("live.m3u8"), headers=HEADERS)) == 8
            assert all(request.authorization for request in camera.requests)
        assert {request.authorization for request in other.requests} == {""}


def test_a_segment_that_redirects_takes_no_credentials_along(parts: list[bytes]) -> None:
    with HlsServer(lambda _: Answer(parts[0])) as other:

        def answer(request: Request) -> Answer:
            if request.path == "/live.m3u8":
                return Answer(playlist("0.ts", complete=True), headers={"Set-Cookie": "session=s3cret"})
            return Answer(status=302, headers={"Location": other.url("moved.ts")})

        with HlsServer(answer) as camera:
            assert read(config_of(camera.url("live.m3u8"), headers=HEADERS)) == 4
        assert all("s3cret" not in " ".join(request.headers.values()) for request in other.requests)


def test_a_stream_that_redirects_takes_no_credentials_along(parts: list[bytes]) -> None:
    """Where `max_redirects` allows it to."""
    with HlsServer(lambda _: Answer(b"".join(parts))) as other:

        def answer(request: Request) -> Answer:
            if not request.authorization:
                return Answer(status=401, headers={"WWW-Authenticate": 'Basic realm="cam"'})
            return Answer(status=307, headers={"Location": other.url("moved.ts"), "Set-Cookie": "session=s3cret"})

        with HlsServer(answer) as camera:
            url = camera.url("cam.ts", "me:s3cret")
            with pytest.raises(SourceError, match="it redirects to http"):
                AvSource(config_of(url, headers="X-Api-Key: s3cret\r\n")).open()
            assert other.requests == []
            assert read(config_of(url, headers="X-Api-Key: s3cret\r\n", max_redirects="3")) == 48
        assert set(other.paths()) == {"/moved.ts"}
        assert all("s3cret" not in " ".join(request.headers.values()) for request in other.requests)


@pytest.mark.parametrize(
    "odd", ["http://{own}@{other}/a.ts", "http://{other}\\@{own}/a.ts", "http://{other}#@{own}/a.ts"]
)
def test_a_url_that_can_be_read_in_two_ways_gets_nothing(odd: str, parts: list[bytes]) -> None:
    with HlsServer(lambda _: Answer(parts[1])) as other:

        def answer(request: Request) -> Answer:
            if request.path == "/live.m3u8":
                own, foreign = (server.url("").split("/")[2] for server in (camera, other))
                return Answer(playlist("0.ts", odd.format(own=own, other=foreign), complete=True))
            return Answer(parts[0])

        with HlsServer(answer) as camera:
            assert read(config_of(camera.url("live.m3u8"), headers=HEADERS)) >= 4
        assert all("s3cret" not in " ".join(request.headers.values()) for request in other.requests)


def test_absolute_addresses_on_the_own_server_are_logged_in_to(parts: list[bytes]) -> None:
    def answer(request: Request) -> Answer:
        if not request.authorization:
            return Answer(status=401, headers={"WWW-Authenticate": 'Basic realm="cam"'})
        return Answer(playlist(camera.url("0.ts"), complete=True) if "m3u8" in request.path else parts[0])

    with HlsServer(answer) as camera:
        assert read(config_of(camera.url("live.m3u8", "me:s3cret"))) == 4


# --- live ------------------------------------------------------------------------------------------------------------


class Live:
    """A sliding list of three segments, which goes on when it is asked again after its newest segment was fetched."""

    def __init__(self, parts: list[bytes], form: str = "{}.ts") -> None:
        self._parts, self._form = parts, form
        self._newest, self._fetched = 2, -1
        self.broken: dict[int, Answer] = {}  # answers to requests for a segment in place of it
        self.lists: list[Answer] = []  # answers to the next requests for the list in place of it
        self.last: int | None = None  # the last segment that there will be
        self.discontinuity: int | None = None  # before this segment
        self.tags: list[str] = []

    def __call__(self, request: Request) -> Answer:
        if "m3u8" not in request.path:
            number = int("".join(filter(str.isdigit, request.path)))
            self._fetched = max(self._fetched, number)
            return self.broken.get(number, Answer(self._parts[number % len(self._parts)]))
        if self.lists and self._fetched >= 0:
            return self.lists.pop(0)
        if self._fetched == self._newest and self._newest != self.last:
            self._newest += 1
        first = self._newest - 2
        lines = list(self.tags)
        for number in range(first, self._newest + 1):
            lines += ["#EXT-X-DISCONTINUITY"] if number == self.discontinuity else []
            lines.append(self._form.format(number))
        return Answer(playlist(*lines, first=first, complete=self._newest == self.last))


def test_a_live_list_is_read_without_a_break(parts: list[bytes]) -> None:
    """Each picture once, though the list fails a few times, a segment is missing, and segments have no extension."""
    live = Live(parts, form="get?id={}&token=abc.def")
    live.tags = ["#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=0.6", "#EXT-X-PART-INF:PART-TARGET=0.2"]
    live.broken[4] = Answer(status=404)
    live.lists = [Answer(status=500), Answer(b"<html>busy</html>"), Answer(status=403)]
    live.last = 6
    with HlsServer(live) as server, closing(AvSource(config_of(server.url("live.m3u8"), kind="live")).open()) as reader:
        assert reader.segment_s == 1
        times = until_end(reader)
    assert len(times) == 24  # of seven segments, without the missing one
    steps = {round(b - a, 1) for a, b in pairwise(times)}
    assert steps == {0.1, 0.5}


def test_another_connection_goes_on_where_the_last_one_ended(parts: list[bytes]) -> None:
    """The first segments of the list have been read before."""
    live = Live(parts)
    with HlsServer(live) as server:
        source = AvSource(config_of(server.url("live.m3u8"), kind="live"))
        times = []
        for _ in range(2):
            with closing(source.open()) as reader:
                times += [time for _, time in zip(range(10), pictures(reader))]
    assert len(times) == len(set(times)) == 20
    assert times == sorted(times)
    assert times[-1] - times[0] == pytest.approx(1.9)


def test_time_goes_on_over_a_discontinuity(parts: list[bytes]) -> None:
    live = Live([*parts[6:9], *parts[:4]])
    live.discontinuity, live.last = 3, 5
    with HlsServer(live) as server, closing(AvSource(config_of(server.url("live.m3u8"), kind="live")).open()) as reader:
        times = until_end(reader)
    assert len(times) == 24
    assert {round(b - a, 1) for a, b in pairwise(times)} == {0.1}


def test_a_list_that_goes_on_no_more_is_given_up(parts: list[bytes]) -> None:
    """After three target durations, and not before; the reason says what is wrong."""
    live = Live(parts)
    live.lists = [Answer(status=503)] * 100
    with (
        HlsServer(live) as server,
        closing(AvSource(config_of(server.url("live.m3u8"), kind="live")).open()) as reader,
        pytest.raises(SourceError, match="its playlist cannot be loaded: ") as error,
    ):
        deque(pictures(reader), maxlen=0)
    assert int(str(error.value).removesuffix(" s").rpartition(" ")[2]) >= 3


@pytest.mark.parametrize("kind", ["auto", "live"])
def test_a_complete_list_is_not_live(parts: list[bytes], kind: str) -> None:
    """It would be played again and again."""
    with (
        HlsServer(
            lambda _: Answer(playlist("0.ts", complete=True)) if "m3u8" in _.path else Answer(parts[0])
        ) as server,
        pytest.raises(SourceError, match=r"is not live: its playlist is complete .* set kind: recording"),
    ):
        AvSource(config_of(server.url("vod.m3u8"), kind=kind)).open()


def test_byte_ranges_and_fragmented_mp4(tmp_path: Path, clip: Path) -> None:
    """A recording as good as its file; its list is known by its type where its name has no extension."""
    clips.ffmpeg(
        "-i", clip, "-c", "copy", "-f", "hls", "-hls_time", "1", "-hls_list_size", "0", "-hls_segment_type", "fmp4",
        "-hls_flags", "single_file", tmp_path / "list.m3u8",
    )  # fmt: skip
    text = (tmp_path / "list.m3u8").read_text()
    assert "BYTERANGE" in text

    def answer(request: Request) -> Answer:
        return Answer(text) if request.path == "/play" else Answer((tmp_path / request.path[1:]).read_bytes())

    with HlsServer(answer) as server:
        assert read(config_of(server.url("play"))) == 45
