"""Tests a decoder session on the libraries of `tests/support/*_stub.cpp`: `python -m tests.support.decoding`.

It is a process of its own, because the libraries must exist when it starts. A failure is an AssertionError.
"""

from __future__ import annotations

import ctypes
from collections import deque
from contextlib import closing

import numpy as np
import pytest
from av.packet import Packet

from daemon.errors import DecodeError
from daemon.sources.decode import UnsuitableError
from daemon.sources.nvdec import session as sessions
from daemon.sources.nvdec.costs import decoder_bytes, picture_bytes
from daemon.sources.nvdec.port import LoadablePicture, NeedsTurnError
from daemon.sources.nvdec.session import Engines, NvdecSession
from detectors.port import DeviceImage

CUDA, NVCUVID = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvcuvid.so.1")
SURFACES = 3


def main() -> None:
    engines = Engines(0)
    assert set(engines.capability().codecs) == {"h264", "hevc", "vp9", "mjpeg"}
    for scenario in (
        pictures_are_copied,
        another_stream_is_decoded,
        what_is_broken_is_told,
        no_room_is_told,
        a_camera_has_no_other_decoder_made_while_it_is_not_read,
    ):
        scenario(engines)
        left = CUDA.cuda_alive() - 1, NVCUVID.nvcuvid_alive()  # the context stays
        assert left == (0, 0), f"{scenario.__name__} left something behind"
    engines.close()
    assert (CUDA.cuda_alive(), CUDA.cuda_trespasses()) == (0, 0)


def pictures_are_copied(engines: Engines) -> None:
    """Pictures are copied whole, without the padding of each row, while other pictures are in use."""
    for low_latency in (True, False):
        with closing(engines.session("hevc", low_latency=low_latency, surfaces=SURFACES)) as session:
            held, seen = deque[tuple[int, DeviceImage]](), list[int | None]()
            assert session.memory_bytes == 0
            for number in range(20):
                for load, time in feed(session, b"p", number):
                    seen.append(time)
                    held.append((len(seen) - 1, load(True, False)))
                    if len(held) == SURFACES:
                        check(*held.popleft())
            assert seen == list(range(20 if low_latency else 16))
            decoder = decoder_bytes("hevc", 1920, 1088, 0, low_latency=low_latency, dpb_size=5)
            assert session.memory_bytes == decoder + SURFACES * picture_bytes(1904, 1078)
            assert len(session.drain()) == 20 - len(seen)
            assert session.memory_bytes == 0
            assert not session.all_free
            while held:
                check(*held.popleft())
            assert session.all_free


def another_stream_is_decoded(engines: Engines) -> None:
    """By the same decoder, while pictures of the stream before are in use."""
    with closing(engines.session("hevc", low_latency=True, surfaces=SURFACES)) as session:
        ((load, _),) = feed(session, b"p", 0)
        before = load(True, False)
        for kind, size in ((b"w", (624, 1078)), (b"p", (1904, 1078)), (b"w", (624, 1078))):
            session.drain()
            assert feed(session, b"-", 0) == []  # parameters alone
            assert session.memory_bytes == 0
            for number in range(2 * SURFACES):
                ((load, _),) = feed(session, kind, number)
                image = load(True, False)
                assert (image.width, image.height) == size
            del image
        assert session.room == (1920, 1088)
        assert not session.all_free
        check(0, before)
        beside = CUDA.cuda_alive()
        del before
        ((load, _),) = feed(session, b"w", 0)
        load(True, False)
        assert CUDA.cuda_alive() < beside
        del load
        assert session.all_free


def a_camera_has_no_other_decoder_made_while_it_is_not_read(engines: Engines) -> None:
    """Because its stream is larger, or because the driver refuses: a recording has one made at once."""
    refusal = ctypes.c_int.in_dll(NVCUVID, "refusal_of_change")
    for first, then, code in ((b"w", b"p", 0), (b"p", b"w", 1)):
        refusal.value = code
        for low_latency in (True, False):
            with closing(engines.session("h264", low_latency=low_latency, surfaces=SURFACES)) as session:
                assert session.can_begin()
                feed(session, first, 0)
                session.drain()
                if low_latency:
                    with pytest.raises(NeedsTurnError):
                        feed(session, then, 0)
                else:
                    feed(session, then, 0)
                    assert [time for _, time in session.drain()] == [0]
                assert session.room == ((0, 0) if code else (640, 1088) if low_latency else (1920, 1088))
    refusal.value = 0


def what_is_broken_is_told(engines: Engines) -> None:
    """A picture with errors is marked, one that hangs raises, and the next one is good."""
    with closing(engines.session("h264", low_latency=True, surfaces=SURFACES)) as session:
        for number, (kind, is_corrupt) in enumerate([(b"e", True), (b"p", False), (b"c", True), (b"p", False)]):
            ((load, _),) = feed(session, kind, 0)
            image = load(True, False)
            assert image.corrupt is is_corrupt
            check(number, image)
        ((broken, _),) = feed(session, b"h", 0)
        sessions._DECODE_TIMEOUT_S = 0.01
        with pytest.raises(DecodeError, match=r"not decoded a picture in 0\.01"):
            broken(True, False)
        sessions._DECODE_TIMEOUT_S = 60.0
        ((good, _),) = feed(session, b"p", 0)
        check(5, good(True, False))
        with pytest.raises(UnsuitableError, match=r"gave up: .* changed where no parameters were seen"):
            feed(session, b"w", 0)


def no_room_is_told(engines: Engines) -> None:
    refusal = ctypes.c_int.in_dll(NVCUVID, "refusal")
    refusal.value = 2
    session = engines.session("h264", low_latency=True, surfaces=SURFACES)
    with closing(session), pytest.raises(UnsuitableError, match="no room for another decoder session"):
        feed(session, b"p", 0)
    refusal.value = 0


def feed(session: NvdecSession, kind: bytes, time: int) -> list[LoadablePicture]:
    packet = Packet(kind * 10)
    return session.decode(packet.buffer_ptr, packet.buffer_size, time)


def check(number: int, image: DeviceImage) -> None:
    """Compare the decoder's picture of that number, byte by byte."""
    CUDA.cuEventSynchronize(ctypes.c_void_p(image.ready))
    rows = image.height + image.height // 2
    assert (image.width, image.height, image.chroma) == (1904, 1078, image.luma + image.height * image.pitch)
    found = np.frombuffer(ctypes.string_at(image.luma, rows * image.pitch), np.uint8).reshape(rows, image.pitch)
    assert (found == (7 * number + np.arange(rows)).astype(np.uint8)[:, None]).all(), number


if __name__ == "__main__":
    main()
