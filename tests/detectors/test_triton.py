"""Models on a real Triton server: transports, layouts, requests in flight, servers that go and come, refusals."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daemon.cli import invoke
from daemon.sources.scene import Scene
from detectors.factory import open_detector
from detectors.port import (
    Detector,
    DetectorError,
    DetectorUnavailableError,
    HostImage,
    Options,
    PostprocessParams,
    Remote,
)
from detectors.triton.address import Address, address_of
from detectors.triton.http import Connection, ServerError
from detectors.triton.server import Server
from tests.bench.__main__ import bench
from tests.support.daemon import DEMO_MODEL, PATIENCE_S, wait_until
from tests.support.tritonserver import FLOATS, PIXELS, ROWS, TritonServer

pytestmark = [pytest.mark.needs("triton"), pytest.mark.slow]
WANTED = PostprocessParams(0.4)
OTHER = """
backend: "python"
max_batch_size: 4
input [{ name: "input_ids" data_type: TYPE_INT64 dims: [-1] }]
output [{ name: "logits" data_type: TYPE_FP32 dims: [-1, 50257] }]
"""
WHITE = HostImage(np.full((32, 32, 3), 255, np.uint8))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    folder = tmp_path_factory.mktemp("triton")
    with closing(TritonServer(folder, {"text": OTHER}, pixels=PIXELS, floats=FLOATS, rows=ROWS)) as server:
        yield server


@pytest.fixture(scope="module")
def images() -> list[HostImage]:
    sizes = [(640, 360), (333, 777), (1920, 1080), (320, 320), (31, 1000)]
    return [HostImage(Scene(width, height, seed=seed).draw(7)) for seed, (width, height) in enumerate(sizes)]


def _open(server: TritonServer, model: str, **more: object) -> Detector:
    options = Options(Path(server.address(model)), wanted=WANTED, max_batch=8)
    return open_detector("triton", replace(options, **more))  # type: ignore[arg-type]  # by name


def _unavailable(detector: Detector) -> str | None:
    assert isinstance(detector, Remote)
    return detector.unavailable


@pytest.mark.share(3)
@pytest.mark.parametrize("transport", ["shm", "http"])
@pytest.mark.parametrize("model", ["floats", "pixels", "rows"])
def test_boxes_are_those_of_the_cpu(server: TritonServer, images: list[HostImage], model: str, transport: str) -> None:
    """Whatever the way, the type and the order of the input; `rows` takes one picture a request, so five are under
    way at once."""
    local = open_detector("cpu", Options(DEMO_MODEL, wanted=WANTED))
    with closing(local), closing(_open(server, model, transport=transport)) as remote:
        kind = "FP32" if model == "floats" else "UINT8"
        assert remote.info.transport.startswith(f"{'shared memory' if transport == 'shm' else 'HTTP'}, {kind}, ")
        assert remote.info.labels == ("person", "car", "bus")
        with closing(local.lane()) as one, closing(remote.lane()) as other:
            for expected, found in zip(one.detect(images)[0], other.detect(images)[0], strict=True):
                np.testing.assert_allclose(found.xyxy, expected.xyxy, atol=1e-2)
                np.testing.assert_allclose(found.confidence, expected.confidence, atol=1e-4)
                np.testing.assert_array_equal(found.class_id, expected.class_id)
            assert ("lookout-triton" in server.regions()) == (transport == "shm")
    assert server.regions() == "[]"


def test_what_a_crash_leaves_behind_is_removed_at_the_next_start(server: TritonServer) -> None:
    script = (
        "import os, sys; from pathlib import Path; from detectors.factory import open_detector\n"
        "from detectors.port import Options\n"
        f"detector = open_detector('triton', Options(Path({server.address('pixels')!r})))\n"
        "detector.lane().detect([detector.sample(64, 64)]); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=PATIENCE_S).returncode == 9
    assert "lookout-triton" in server.regions()
    with closing(_open(server, "pixels")) as detector, closing(detector.lane()) as lane:
        assert server.regions() == "[]"  # a lane makes its region with its first batch
        lane.detect([detector.sample(64, 64)])
        with closing(_open(server, "pixels")):
            assert server.regions().count("lookout-triton") == 2  # its name and its key: it is in use


def test_a_server_that_fails_is_away_until_a_trial_succeeds(server: TritonServer, images: list[HostImage]) -> None:
    """The lane stays usable, and nothing of the failed request is in later results."""
    with closing(_open(server, "pixels")) as detector, closing(detector.lane()) as lane:
        expected = lane.detect(images)[0]
        with pytest.raises(DetectorUnavailableError, match="a white picture"):
            lane.detect([WHITE])
        wait_until(lambda: _unavailable(detector) is None, "the server is back")
        for one, other in zip(lane.detect(images)[0], expected, strict=True):
            np.testing.assert_array_equal(one.xyxy, other.xyxy)
    assert server.regions() == "[]"


def test_a_server_that_was_killed_is_found_again(server: TritonServer, images: list[HostImage]) -> None:
    """Two lanes meet it, and the regions are registered again."""
    with closing(_open(server, "pixels")) as detector, closing(detector.lane()) as one, closing(detector.lane()) as two:
        expected = [len(found) for found in one.detect(images)[0]]
        two.detect(images)
        server.kill()
        for lane in (one, two, one):
            with pytest.raises(DetectorUnavailableError, match=f"pixels on 127.0.0.1:{server.port}: .*cannot be"):
                lane.detect(images)
        with pytest.raises(DetectorUnavailableError, match="cannot be reached"):
            _open(server, "pixels")
        server.start()
        wait_until(lambda: _unavailable(detector) is None, "the server is back")
        for lane in (one, two):
            assert [len(found) for found in lane.detect(images)[0]] == expected
    assert server.regions() == "[]"


def test_a_server_is_asked_while_no_frame_comes() -> None:
    """It is found to be away, to be back, and to have another model: labels and head would be those of the old one."""
    asked, away, changed = threading.Event(), threading.Event(), threading.Event()

    def ask() -> None:
        asked.set()
        if changed.is_set():
            raise DetectorError("another model")
        if away.is_set():
            raise ServerError("not there")

    server = Server("model", ask, ask, interval_s=0.01)
    try:
        assert asked.wait(PATIENCE_S)
        server.check()
        away.set()
        wait_until(lambda: server.unavailable == "model model: not there", "it is away")
        with pytest.raises(DetectorUnavailableError, match="not there"):
            server.check()
        away.clear()
        wait_until(lambda: server.unavailable is None, "it is back")
        server.check()
        changed.set()
        wait_until(lambda: _is_another(server), "it has another model")
    finally:
        server.close(PATIENCE_S)


def _is_another(server: Server) -> bool:
    try:
        server.check()
    except DetectorUnavailableError:
        raise
    except DetectorError as error:
        return "another model" in str(error)
    return False


def test_a_server_that_gives_no_answer_is_away_at_the_deadline() -> None:
    """It accepts connections and says nothing, or says a little now and then."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = Address("127.0.0.1", silent.getsockname()[1], "model")
        with closing(Connection(address, 0.2)) as link, pytest.raises(ServerError, match=r"no answer within 0\.2 s"):
            link.query("/v2")
        ended = threading.Event()

        def trickle() -> None:
            for peer, _ in (silent.accept() for _ in range(2)):
                with peer:
                    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                    while not ended.wait(0.02):
                        try:
                            peer.sendall(b"x")
                        except OSError:
                            break

        thread = threading.Thread(target=trickle)
        thread.start()
        with closing(Connection(address, 0.3)) as link, pytest.raises(ServerError, match=r"no answer within 0\.3 s"):
            link.query("/v2")
        ended.set()
        thread.join(PATIENCE_S)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "states an answer of 99999999999 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", "is no server of KServe's protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n<a>", "is no JSON"),
        (b"220 mail.example ESMTP\r\n", "cannot be reached"),
        (b'HTTP/1.1 400 No\r\nContent-Length: 20\r\n\r\n{"error": "\\u001b["}', r"\?\["),
    ],
)
def test_another_kind_of_server_is_refused(answer: bytes, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: _answer(listener, answer))
        thread.start()
        options = Options(Path(f"http://127.0.0.1:{listener.getsockname()[1]}/model"))
        with pytest.raises(DetectorError, match=words) as caught:
            open_detector("triton", options)
        thread.join(PATIENCE_S)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def _answer(listener: socket.socket, answer: bytes) -> None:
    peer, _ = listener.accept()
    with peer:
        peer.recv(1 << 16)
        peer.sendall(answer)


@pytest.mark.parametrize(
    ("model", "more", "words"),
    [
        ("none", {}, "model none on .*unknown model: 'none' is not found"),
        ("pixels/7", {}, "model pixels on .*not"),
        (
            "text",
            {},
            r"needs one input of FP32, FP16 or UINT8 .*input_ids INT64 \[-1, -1\], which looks like a language",
        ),
        ("pixels", {"precision": "fp16"}, "a server chooses the precision: set model.precision: auto"),
        ("pixels", {"head": "yolox"}, "head not recognised: outputs are output0 2x7x2100"),
        ("pixels", {"further_sizes": ((64, 64),)}, "pixels: a model on a server has one input size: remove input_size"),
        ("pixels", {"input_size": (64, 64)}, "pixels: the model's input is fixed at 320x320"),
    ],
)
def test_what_cannot_be_used_is_refused(server: TritonServer, model: str, more: dict[str, object], words: str) -> None:
    with pytest.raises(DetectorError, match=words) as caught:
        _open(server, model, **more)
    assert not isinstance(caught.value, DetectorUnavailableError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "path",
    ["http://host", "http://host/", "http://a:b@host/m", "https://host/m", "http://h:0/m", "http://h/a/b/c", "m.onnx"],
)
def test_what_is_no_address_is_refused(path: str) -> None:
    with pytest.raises(DetectorError, match="is no address of a model on a server: write http://HOST:PORT/NAME"):
        address_of(Path(path))


def test_addresses() -> None:
    assert address_of(Path("http://host/m")) == Address("host", 8000, "m")
    assert address_of(Path("http://[::1]:9/m/3")) == Address("::1", 9, "m", "3")
    assert address_of(Path("http://127.0.0.1/m")).is_local
    assert not address_of(Path("http://192.0.2.1/m")).is_local


def test_an_address_is_for_triton_alone() -> None:
    with pytest.raises(DetectorError, match=r"is an address: set model\.backend: triton, or give a file"):
        open_detector("auto", Options(Path("http://host/m")))


def test_a_server_is_measured_beside_other_engines(server: TritonServer, tmp_path: Path) -> None:
    """`python -m tests.bench engine --peer triton`: through Lookout's connection, and with its raw outputs."""
    file = tmp_path / "rates.json"
    command = ["engine", str(DEMO_MODEL), "--peer", "triton", "--server", server.address("floats")]
    assert invoke([*command, "--max-batch", "2", "--seconds", "0.1", "--json", str(file)], bench) == 0
    _, row = json.loads(file.read_text())["engines"]
    assert (row["engine"], row["precision"]) == ("Triton server", "server")
    assert row["note"].startswith("shared memory, FP32")
    assert row["images_per_s"] > 0
    assert row["relative"] < 1e-5
    assert server.regions() == "[]"
