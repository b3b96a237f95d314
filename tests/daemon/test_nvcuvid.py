"""What NVIDIA's decoder is asked for, by libraries that are compiled from its headers and have no GPU."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from daemon.sources.nvdec import nvcuvid
from daemon.sources.nvdec.nvcuvid import OUT_OF_MEMORY, DisplayedPicture, NvdecError, StreamDecoder
from tests.support.driver import built
from tests.support.told import written

pytestmark = [
    pytest.mark.needs("g++", "nvcuvid"),
    pytest.mark.usefixtures("driver"),
]
STREAM = 77
ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"


class Driver:
    """The library, under the name by which the daemon asks for it."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library.told.restype = ctypes.c_char_p

    def told(self) -> list[str]:
        """What it was asked for since the last time, and what it still has."""
        return bytes(self._library.told()).decode().splitlines()

    def refuse(self, code: int) -> None:
        ctypes.c_int.in_dll(self._library, "refusal").value = code

    def refuse_changes(self, code: int) -> None:
        ctypes.c_int.in_dll(self._library, "refusal_of_change").value = code


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of libcuda.so.1 and libnvcuvid.so.1."""
    return built(tmp_path_factory.mktemp("driver"), "cuda", "nvcuvid")


@pytest.fixture(scope="module")
def library(libraries: Path) -> Driver:
    return Driver(libraries / "libnvcuvid.so.1")


@pytest.fixture
def driver(library: Driver) -> Iterator[Driver]:
    library.told()
    yield library
    library.refuse(0)
    library.refuse_changes(0)
    nvcuvid._has_refused.clear()
    assert library.told()[-1] == "alive 0 mapped 0", "something was left behind"


def feed(decoder: StreamDecoder, *packets: str, first: int = 0) -> list[DisplayedPicture]:
    """Packets with the times 0, 10, 20 ..; where it is in capitals, without."""
    found = []
    for number, packet in enumerate(packets, first):
        data = ctypes.create_string_buffer(packet.lower().encode(), 100)
        found += decoder.parse(ctypes.addressof(data), 100, None if packet.isupper() else 10 * number)
    return found


def test_a_card_says_what_it_decodes() -> None:
    found = nvcuvid.caps("hevc")
    assert (found.supported, found.engines) == (1, 7)
    assert (found.width_min, found.height_min, found.width_max, found.height_max) == (48, 16, 4096, 2304)
    assert not nvcuvid.caps("av1").supported


@pytest.mark.parametrize(("codec", "number"), nvcuvid.CODECS.items())
def test_a_decoder_is_made_for_what_the_stream_says(driver: Driver, codec: str, number: int) -> None:
    """Its pictures are cut to what is to be shown, and even, as NV12 is."""
    with closing(StreamDecoder(codec, STREAM, low_latency=True)) as decoder:
        assert feed(decoder, "p") == [(0, 0)]
        assert decoder.size == (1904, 1078)
        assert driver.told() == [
            f"parser codec {number} delay 0",
            f"decoder codec {number} of 1920x1088 up to 1920x1088 shown 8,4,1912,1082 as 1904x1078 surfaces 5+1 "
            "chroma 1 depth 0 output 0 deinterlace 0 flags 4",
            "picture 0 of 100 bytes",
            "alive 2 mapped 0",
        ]


def test_pictures_have_the_times_of_their_packets() -> None:
    with closing(StreamDecoder("h264", STREAM, low_latency=True)) as decoder:
        assert feed(decoder, "P", "p", "-", "p", "P") == [(0, None), (1, 10), (2, 30), (3, None)]
        assert decoder.drain() == []


def test_where_pictures_may_wait_four_are_on_their_way(driver: Driver) -> None:
    """A decoder that is drained goes on."""
    with closing(StreamDecoder("h264", STREAM, low_latency=False)) as decoder:
        assert feed(decoder, *"pppppp") == [(0, 0), (1, 10)]
        assert decoder.drain() == [(2, 20), (3, 30), (4, 40), (5, 50)]
        assert feed(decoder, *"ppppp", first=6) == [(6, 60)]
        assert len([line for line in driver.told() if line.startswith("decoder")]) == 1


def test_a_picture_is_asked_about_and_brought_out_in_the_stream(driver: Driver) -> None:
    with closing(StreamDecoder("h264", STREAM, low_latency=True)) as decoder:
        ((number, _),) = feed(decoder, "p")
        assert [decoder.is_done(number) for _ in range(4)] == [False, False, True, True]
        pointer, pitch = decoder.map(number)
        assert pitch == 2048
        assert ctypes.string_at(pointer, pitch) == bytes(pitch)
        assert f"map 0 progressive 1 stream {STREAM}" in driver.told()
        decoder.unmap(pointer)


def test_codecs_of_which_it_does_not_say_are_not_asked_about() -> None:
    with closing(StreamDecoder("vp9", STREAM, low_latency=True)) as decoder:
        ((number, _),) = feed(decoder, "p")
        assert decoder.is_done(number)


@pytest.mark.parametrize("kind", ["e", "c"])
def test_a_picture_with_errors_is_said_to_have_them(kind: str) -> None:
    """Left as they are, or concealed; the next one has none."""
    with closing(StreamDecoder("h264", STREAM, low_latency=True)) as decoder:
        for packet, found_errors in (("p", False), (kind, True), ("p", False)):
            ((number, _),) = feed(decoder, packet)
            while not decoder.is_done(number):
                assert not decoder.found_errors
            assert decoder.found_errors is found_errors


def test_no_room_is_told_apart_from_other_refusals(driver: Driver) -> None:
    for code in (OUT_OF_MEMORY, 801):
        driver.refuse(code)
        with closing(StreamDecoder("h264", STREAM, low_latency=True)) as decoder:
            with pytest.raises(NvdecError, match=f"cuvidCreateDecoder: CUDA error {code}$") as caught:
                feed(decoder, "p")
            assert caught.value.code == code


def test_what_it_was_not_made_for_is_refused(driver: Driver) -> None:
    """And not given to the decoder that there is."""
    with closing(StreamDecoder("h264", STREAM, low_latency=True)) as decoder:
        feed(decoder, "p")
        driver.told()
        with pytest.raises(NvdecError, match="changed"):
            feed(decoder, "w")
        assert driver.told() == ["alive 2 mapped 0"]
    with closing(StreamDecoder("h264", STREAM, low_latency=True)) as decoder, pytest.raises(NvdecError, match="8-bit"):
        feed(decoder, "t")


def forms_of(driver: Driver) -> list[str]:
    """The decoders that were made, and changed."""
    return [line.partition(" shown")[0] for line in driver.told() if line.startswith(("decoder", "change"))]


def test_a_decoder_that_is_empty_is_changed_to_a_smaller_stream_and_back(driver: Driver) -> None:
    """It is made once: making one takes 50 ms. What it was made for it has room for as well."""
    with closing(StreamDecoder("h264", STREAM, low_latency=True)) as decoder:
        for kind, size in (("p", (1904, 1078)), ("w", (624, 1078)), ("w", (624, 1078)), ("p", (1904, 1078))):
            decoder.drain()
            assert len(feed(decoder, *[kind] * 3)) == 3
            assert (decoder.size, decoder.room) == (size, (1920, 1088, 5))
        assert forms_of(driver) == [
            "decoder codec 4 of 1920x1088 up to 1920x1088",
            "change to 640x1088",
            "change to 1920x1088",
        ]


@pytest.mark.parametrize("code", [0, 1, 801])
def test_where_a_decoder_cannot_be_changed_another_is_made(driver: Driver, code: int, tmp_path: Path) -> None:
    """Because the stream is larger, or because the driver refuses, which is said once."""
    driver.refuse_changes(code)
    first, then = ("p", "w") if code else ("w", "p")
    with written(tmp_path) as lines, closing(StreamDecoder("h264", STREAM, low_latency=True)) as decoder:
        for kind in (first, then, first):
            decoder.drain()
            assert len(feed(decoder, kind)) == 1
        made = [form for form in forms_of(driver) if form.startswith("decoder")]
        assert len(made) == (3 if code else 2)
        said = [row for row in lines() if "changes no decoder" in row["event"]]
        assert [row["error"] for row in said] == ([code] if code else [])
        assert nvcuvid.refuses_changes() is bool(code)


def test_a_change_that_loses_the_gpu_is_not_survived(driver: Driver) -> None:
    with closing(StreamDecoder("h264", STREAM, low_latency=True)) as decoder:
        feed(decoder, "p")
        decoder.drain()
        driver.refuse_changes(700)
        with pytest.raises(NvdecError) as caught:
            feed(decoder, "w")
        assert caught.value.sticky


def test_a_session_brings_out_whole_pictures_and_leaves_nothing_behind(libraries: Path) -> None:
    ran(libraries, "-m", "tests.support.decoding")


@pytest.mark.needs("ffmpeg")
def test_a_card_is_tried_and_measured(libraries: Path, clip: Path, tmp_path: Path) -> None:
    """By the commands themselves, with processes of their own."""
    report = tmp_path / "rates.json"
    sessions = ("--sessions", "1", "--sessions", "5")
    ran(libraries, "-m", "daemon", "bench", "part", "decode", clip, *sessions, "--seconds", "0.3", "--json", report)
    rates = json.loads(report.read_text())["rates"]
    assert [(rate["sessions"], rate["processes"]) for rate in rates] == [(1, 1), (5, 4)]
    assert all(rate["fps"] > 0 and rate["cpu_ms_per_frame"] > 0 for rate in rates)


def test_a_driver_without_a_decoder_says_what_to_do(libraries: Path, tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").symlink_to(libraries / "libcuda.so.1")
    said = ran(tmp_path, "-m", "daemon.sources.nvdec.trial", "0", code=1)
    assert said.startswith("NVIDIA's decoder does not load: libnvcuvid.so.1: ")
    assert "NVIDIA_DRIVER_CAPABILITIES" in said
    assert said.count("\n") == 1


def ran(libraries: Path, *arguments: str | Path, code: int = 0) -> str:
    """What a program wrote to standard error."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stderr
