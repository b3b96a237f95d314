"""The command line's one door: whatever a user gets wrong is one line on stderr and exit code 2."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click
import numpy as np
import onnx
import pytest
import zmq

from daemon.cli import cli, invoke
from daemon.system.database_lock import Lock
from tests.support.daemon import DEMO_MODEL, PATIENCE_S, ROOT
from tests.support.ports import free_port


def _config(folder: Path, **changes: object) -> list[str]:
    """`-c` and a file: a short synthetic source and the demo model, with changes to the top level."""
    content: dict[str, object] = {
        "model": {"path": str(DEMO_MODEL)},
        "sources": [{"id": "cam", "type": "synthetic", "frames": 3, "pace": "fast"}],
        "publisher": {"endpoint": "tcp://127.0.0.1:*"},
        **changes,
    }
    file = folder / "config.yaml"
    file.write_text(json.dumps(content))  # JSON is YAML
    return ["-c", str(file)]


def _model(folder: Path, shape: list[int | str], output: list[int | str], **metadata: str) -> Path:
    """An ONNX file whose output is zeros of a shape."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    zeros = onnx.numpy_helper.from_array(np.zeros([1 if isinstance(n, str) else n for n in output], np.float32))
    node = helper.make_node("Constant", [], ["out"], value=zeros)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("images", kind, shape)],
        [helper.make_tensor_value_info("out", kind, output)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, metadata)
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def _with_names(folder: Path, names: str) -> Path:
    """The demo model with other labels."""
    model = onnx.load(DEMO_MODEL)
    onnx.helper.set_model_props(model, {"names": names})
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def _one_line(capsys: pytest.CaptureFixture[str]) -> str:
    error = capsys.readouterr().err.strip()
    assert error.count("\n") == 0, error
    assert error.startswith("lookout: ")
    return error


@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-c", "nowhere.yaml"], "does not exist"),
        (["-c", "."], "cannot be read"),
        (["--config"], "requires an argument"),
        (["--verbose"], "No such option"),
    ],
)
def test_bad_arguments(command: str, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([command, *arguments]) == 2
    assert says in _one_line(capsys)


def test_the_file_and_the_key_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", *_config(tmp_path, lanes="two")]) == 2
    assert f"{tmp_path}/config.yaml: lanes: must be a whole number between 1 and 16" in _one_line(capsys)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": {"path": "nothing.onnx"}}, "cannot be read"),
        ({"model": {"path": str(DEMO_MODEL), "labels": "nothing.txt"}}, "labels file"),
        ({"model": {"path": str(DEMO_MODEL), "labels": "coco"}}, "has 80 labels, but the model's output has 3 classes"),
        ({"model": {"path": str(DEMO_MODEL), "head": "yolov5"}}, "head not recognised"),
        ({"model": {"path": str(DEMO_MODEL), "backend": "trt"}}, "backend trt is not available"),
        ({"model": {"path": str(DEMO_MODEL), "input_size": [64, 64]}}, "fixed at 320x320"),
        ({"log": {"file": "/proc/nowhere/lookout.log"}}, "log.file"),
        ({"monitor": {"frames_file": "/proc/nowhere/frames.jsonl"}}, "monitor.frames_file"),
        ({"publisher": {"endpoint": "tcp://203.0.113.1:1", "allow_plaintext": True}}, "cannot bind"),
        (
            {"sources": [{"id": "cam", "type": "synthetic", "labels": ["unicorn"]}]},
            "no label 'unicorn'; it has person, car, bus",
        ),
    ],
)
def test_what_only_shows_at_the_start(
    change: dict[str, object], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["run", *_config(tmp_path, **change)]) == 2
    assert says in _one_line(capsys)


def test_models_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Empty, not ONNX, cut short, of an unknown head, of another task, with a wrong input."""
    files = {
        "0 bytes": b"",
        "not a complete ONNX model": b"hello" * 100,
        "complete ONNX": DEMO_MODEL.read_bytes()[:100_000],
    }
    for says, content in files.items():
        path = tmp_path / "m.onnx"
        path.write_bytes(content)
        assert invoke(["run", *_config(tmp_path, model={"path": str(path)})]) == 2
        assert says in _one_line(capsys)
    models = {
        "head not recognised": _model(tmp_path / "a", ["b", 3, 64, 64], ["b", 10, 10]),
        "task is 'depth'": _model(tmp_path / "b", ["b", 3, 64, 64], ["b", 56, 84], task="depth"),
        "one float input": _model(tmp_path / "c", ["b", 64], ["b", 84, 84]),
        "input size is dynamic": _model(tmp_path / "d", ["b", 3, "h", "w"], ["b", 84, 84]),
        "is not a list of labels": _with_names(tmp_path / "e", "oops("),
    }
    for says, path in models.items():
        assert invoke(["run", *_config(tmp_path, model={"path": str(path)})]) == 2
        assert says in _one_line(capsys)


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path) -> None:
    for name in "abcde":
        (tmp_path / name).mkdir()


def test_a_port_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zmq.Context() as context, context.socket(zmq.PUB) as other:
        port = other.bind_to_random_port("tcp://127.0.0.1")
        assert invoke(["run", *_config(tmp_path, publisher={"endpoint": f"tcp://127.0.0.1:{port}"})]) == 2
    assert "another Lookout" in _one_line(capsys)


def test_a_run_of_recordings_ends_by_itself(tmp_path: Path) -> None:
    assert invoke(["run", *_config(tmp_path)]) == 0


@pytest.mark.parametrize("key", ["monitor", "log"])
def test_a_full_disk_costs_lines_and_nothing_else(tmp_path: Path, key: str) -> None:
    """/dev/full takes nothing: the run goes on to its end."""
    change = {"monitor": {"frames_file": "/dev/full"}, "log": {"file": "/dev/full"}}[key]
    assert invoke(["run", *_config(tmp_path, **{key: change})]) == 0


def test_the_file_of_frames_holds_each_frame(tmp_path: Path) -> None:
    file = tmp_path / "frames.jsonl"
    sources = [{"id": "cam", "type": "synthetic", "frames": 20, "pace": "fast", "max_fps": 10}]
    invoke(["run", *_config(tmp_path, sources=sources, board={"mode": "lossless"}, monitor={"frames_file": str(file)})])
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted(line["seq"] for line in lines) == list(range(20))
    assert {line.get("dropped") for line in lines} == {None, "rate_limit"}
    published = [line for line in lines if "dropped" not in line]
    assert all(line["total"] >= line["wait"] + line["infer"] for line in published)


def test_check_tells_what_it_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources = [{"id": "cam", "type": "synthetic"}, {"id": "lost", "type": "av", "url": "rtsp://me:pa55@127.0.0.1:1/x"}]
    assert invoke(["check", *_config(tmp_path, sources=sources)]) == 2
    output = capsys.readouterr().out
    assert "trt" in output  # and why it is not available
    assert "lost: cannot open rtsp://***@127.0.0.1:1/x: Connection refused" in output
    assert "pa55" not in output
    assert invoke(["check", "--running", "-c", str(ROOT / "config.yaml")]) == 0


@pytest.mark.parametrize("files", [12, 20])
def test_too_few_files_are_told_in_one_line(files: int, tmp_path: Path) -> None:
    command = ["prlimit", f"--nofile={files}", sys.executable, "-m", "daemon", "run", *_config(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"may open {files} files, of which 24 are needed" in done.stderr


def test_as_many_files_as_are_needed_are_enough(tmp_path: Path) -> None:
    sources = [{"id": "street", "type": "synthetic", "width": 160, "height": 96, "frames": 5}]
    command = ["prlimit", "--nofile=24", sys.executable, "-m", "daemon", "run", *_config(tmp_path, sources=sources)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


def test_what_is_no_file_is_no_model_and_no_list_of_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Such as a device that has no end."""
    assert invoke(["run", *_config(tmp_path, model={"path": "/dev/zero"})]) == 2
    assert "/dev/zero is not a file; set model.path" in _one_line(capsys)
    (tmp_path / "model.pt").write_bytes(b"PK")
    assert invoke(["run", *_config(tmp_path, model={"path": str(tmp_path / "model.pt")})]) == 2
    assert "is a PyTorch file" in _one_line(capsys)
    http = {"enabled": True, "sources_file": "/dev/zero", "token": "a-token-that-is-long-enough"}
    assert invoke(["run", *_config(tmp_path, http=http)]) == 2
    assert "/dev/zero is not a file" in _one_line(capsys)


def test_check_finds_what_would_end_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A port in use, a file that cannot be written, a token that is none; nothing is left of what was tried."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        parts: dict[str, tuple[dict[str, object], str]] = {
            "publisher": ({"endpoint": f"tcp://127.0.0.1:{port}"}, "publisher.endpoint: cannot bind"),
            "http": ({"enabled": True, "port": port}, f"http: cannot bind 127.0.0.1:{port}"),
            "log": ({"file": str(tmp_path / "no" / "log")}, "log.file: "),
            "monitor": ({"frames_file": str(tmp_path)}, "monitor.frames_file: "),
            "events": ({"snapshots": {"folder": "/proc/version/pictures"}}, "events.snapshots.folder"),
            "events ": ({"snapshots": {"folder": "/proc/pictures"}}, "events.snapshots.folder"),
            "events  ": ({"journal": "/proc/events.sqlite"}, "events.journal: /proc/events.sqlite cannot be written"),
            "record": (
                {"stores": {"disk": {"path": str(tmp_path / "disk")}}, "port": port},
                f"record: cannot bind 127.0.0.1:{port}",
            ),
        }
        api = {"enabled": True, "port": 0, "token": "a-token-that-is-long-enough"}
        for key, (value, words) in parts.items():
            command = _config(tmp_path, **{"http": api, key.strip(): value})
            assert invoke(["check", *command]) == 2
            assert words in capsys.readouterr().out
            if key in ("publisher", "http", "record"):
                assert invoke(["check", "--running", *command]) == 0
            assert invoke(["run", *command]) == 2
            assert words in capsys.readouterr().err
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    tls = {"enabled": True, "port": 0, "tls_certificate": str(broken), "tls_key": str(broken)}
    for verb in ("check", "run"):
        assert invoke([verb, *_config(tmp_path, http=tls)]) == 2
        said = capsys.readouterr()
        assert "http.tls_certificate, tls_key: cannot be read" in said.out + said.err
    short = {"enabled": True, "port": port, "tokens": [{"name": "a", "token": "short"}]}
    assert invoke(["check", *_config(tmp_path, http=short)]) == 2
    assert "shorter than 16 characters" in capsys.readouterr().out
    assert invoke(["check", *_config(tmp_path, log={"file": str(tmp_path / "new.log")})]) == 0
    assert not (tmp_path / "new.log").exists()


_GIVEN = "a-token-that-is-long-enough"
_AWAY = "192.0.2.1"  # no machine has this address
_TARGET = {"name": "home", "type": "mqtt", "url": "mqtt://127.0.0.1:1"}


def _checked(
    folder: Path, capsys: pytest.CaptureFixture[str], option: str, *more: str, **changes: object
) -> tuple[int, list[str]]:
    """Exit code and lines of a check that tries the page or the bridge, too; it leaves nothing in the folder."""
    words = _config(folder, **changes)
    before = sorted(folder.rglob("*"))
    code = invoke(["check", option, *more, *words])
    assert sorted(folder.rglob("*")) == before
    return code, capsys.readouterr().out.splitlines()


def test_check_tries_what_the_page_opens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    people = [{"name": "me", "role": "view", "token": _GIVEN}]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        rows: list[tuple[dict[str, object], str]] = [
            ({"port": port}, f"dashboard: cannot bind 127.0.0.1:{port}"),
            ({"host": _AWAY, "port": 0, "tokens": people}, f"dashboard: cannot bind {_AWAY}:0"),
            ({"port": 0, "tokens": [{"name": "me", "token": "short"}]}, "is shorter than 16 characters"),
            ({"port": 0, "tls_certificate": "none.pem", "tls_key": "none.pem"}, "dashboard.tls_certificate: "),
        ]
        for page, words in rows:
            code, lines = _checked(tmp_path, capsys, "--dashboard", dashboard=page)
            assert (code, len([line for line in lines if words in line])) == (2, 1), lines
            assert invoke(["check", *_config(tmp_path, dashboard=page)]) == 0
            assert words not in capsys.readouterr().out
        assert _checked(tmp_path, capsys, "--dashboard", "--running", dashboard={"port": port})[0] == 0
    assert _checked(tmp_path, capsys, "--dashboard", dashboard={"port": 0})[0] == 0


def test_check_finds_two_parts_with_one_port(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    http = {"enabled": True, "port": port, "token": _GIVEN}
    code, lines = _checked(tmp_path, capsys, "--dashboard", http=http, dashboard={"port": port})
    assert code == 2
    assert lines[0].startswith(f"dashboard: cannot bind 127.0.0.1:{port}: Address already in use")


def test_check_tries_what_the_bridge_opens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spool = str(tmp_path / "spool.sqlite")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        rows: list[tuple[dict[str, object], str]] = [
            ({"spool": spool}, "bridge.targets: is empty"),
            ({"targets": [_TARGET]}, "bridge.spool: name a file"),
            (
                {"targets": [_TARGET], "spool": str(tmp_path / "no" / "file")},
                f"the folder {tmp_path}/no does not exist",
            ),
            (
                {"targets": [_TARGET], "spool": "/proc/spool.sqlite"},
                "bridge.spool: /proc/spool.sqlite cannot be written",
            ),
            ({"targets": [_TARGET], "spool": spool, "port": port}, f"bridge: cannot bind 127.0.0.1:{port}"),
        ]
        for bridge, words in rows:
            code, lines = _checked(tmp_path, capsys, "--bridge", bridge=bridge)
            assert (code, len([line for line in lines if words in line])) == (2, 1), lines
        right = {"targets": [_TARGET], "spool": spool, "port": port}
        assert _checked(tmp_path, capsys, "--bridge", "--running", bridge=right)[0] == 0
    with closing(Lock(Path(spool), "bridge.spool")):
        code, lines = _checked(tmp_path, capsys, "--bridge", bridge={**right, "port": 0})
        assert (code, lines[0]) == (2, f"bridge.spool: another Lookout writes to {spool}: name another file")
        assert _checked(tmp_path, capsys, "--bridge", "--running", bridge=right)[0] == 0
    assert _checked(tmp_path, capsys, "--bridge", bridge={**right, "port": 0})[0] == 0


def test_check_asks_the_coordinator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It may come back, so `run` waits for it: but without a word nobody would know why there are no sources."""
    fleet = {"coordinator": "etcd://127.0.0.1:1"}
    assert invoke(["check", *_config(tmp_path, fleet=fleet, sources=[])]) == 2
    said = capsys.readouterr().out
    assert "fleet.coordinator: " in said
    assert "has no sources until then" in said


def test_a_process_without_room_says_so_before_it_is_ready() -> None:
    """In one line, and not by a thread that cannot be started once it runs."""
    code = """
import os, resource
from daemon.errors import LookoutError
from daemon.system.tuning import check_room
check_room(4)
pages = int(open("/proc/self/statm").read().split()[0])
most = pages * os.sysconf("SC_PAGE_SIZE") + (96 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
try:
    check_room(64)
except LookoutError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.startswith("the system gives no room for 64 more threads")
    assert done.stdout.count("\n") == 1


def test_watch_once_is_a_health_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["watch", "tcp://127.0.0.1:1", "--once", "--timeout", "0.1"]) == 1
    assert "check that it runs" in capsys.readouterr().err
    for endpoint in ("nonsense", "tcp://127.0.0.1:70000", "tcp://127.0.0.1:-1", "tcp://127.0.0.1:0", "tcp://127.0.0.1"):
        assert invoke(["watch", endpoint, "--once"]) == 2
        assert "it looks like tcp://" in _one_line(capsys)


def test_watch_in_a_pipe_says_what_to_ask_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["watch", "tcp://127.0.0.1:5556"]) == 2
    assert "use --json" in _one_line(capsys)


def test_a_camera_that_is_not_there_writes_nothing_but_log_lines(tmp_path: Path) -> None:
    """U15: OpenCV has words of its own."""
    from tests.support.daemon import Lookout, is_state, receive_until

    sources = [{"id": "usb", "type": "camera", "device": "/dev/video99"}]
    with Lookout(tmp_path, {"sources": sources}) as lookout:
        with lookout.subscribe("status") as subscriber:
            receive_until(subscriber, is_state("usb", "down"))
        assert lookout.stop() == 0
        lines = lookout.log().splitlines()
    assert lines
    assert [line for line in lines if not line.startswith("{")] == []


def test_a_model_that_never_opens_ends_the_start(tmp_path: Path) -> None:
    """A8: with one line; what is in the library is left behind."""
    from tests.support.models import endless_model

    model = {"path": str(endless_model(tmp_path / "endless.onnx")), "open_timeout_s": 3}
    command = [sys.executable, "-m", "daemon", "run", *_config(tmp_path, model=model)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert "open_timeout_s" in line


def test_watch_prints_lines_of_json(tmp_path: Path) -> None:
    """The whole command, on a running daemon, until Ctrl-C."""
    from tests.support.daemon import Lookout

    with Lookout(tmp_path, {"sources": [{"id": "cam", "type": "synthetic"}]}) as lookout:
        command = [sys.executable, "-m", "daemon", "watch", lookout.endpoint, "--json", "--source", "cam"]
        watch = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
        assert watch.stdout is not None
        messages = [json.loads(watch.stdout.readline()) for _ in range(10)]
        watch.send_signal(signal.SIGINT)
        _, errors = watch.communicate(timeout=PATIENCE_S)
        assert watch.returncode == 130
        assert errors.strip() == b""
    assert {message["schema"] for message in messages} >= {"lookout.detections/1"}


def test_keys_are_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["keys", "new", str(tmp_path)]) == 0
    capsys.readouterr()
    assert invoke(["keys", "new", str(tmp_path)]) == 2
    assert "exists" in _one_line(capsys)


@pytest.mark.needs("ffmpeg")
def test_bench_run_writes_its_figures(clip: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    whole = ["--until-end", "--repeats", "1", "--lanes", "1", "--max-batch", "8", "--model", "demo"]
    assert invoke(["bench", "run", str(clip), "--sources", "2", *whole, "--json", str(out)]) == 0
    figures = json.loads(out.read_text())["cases"][0]["repeats"][0][0]
    assert figures["captured"] == figures["published"] == 90
    assert figures["dropped_share"] == 0
    assert figures["fps"] == pytest.approx(90 / figures["seconds"], rel=0.01)
    assert "captured to received" in " ".join(capsys.readouterr().out.replace("│", " ").split())


@pytest.mark.needs("ffmpeg")
def test_the_end_of_a_measurement_is_no_fault(clip: Path, capfd: pytest.CaptureFixture[str]) -> None:
    quick = ["--sources", "1", "--lanes", "1", "--warm-up", "0", "--seconds", "0.1", "--repeats", "1"]
    assert invoke(["bench", "run", str(clip), *quick]) == 0
    assert "cut short" not in capfd.readouterr().err


@pytest.mark.needs("ffmpeg")
def test_bench_refuses_what_it_cannot_play(clip: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["bench", "run", "--until-end", str(clip), str(tmp_path / "gone.mp4")]) == 2
    assert "No such file" in _one_line(capsys)
    assert invoke(["bench", "run", str(clip), "--json", "/proc/nowhere/x.json"]) == 2
    assert "cannot be written" in _one_line(capsys)


def test_bench_knows_models_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for model, says in (("yolox_nano", "lookout model get yolox_nano"), ("gone", "no model 'gone' in the catalogue")):
        assert invoke(["bench", "run", "--model", model]) == 2
        assert says in _one_line(capsys)


def test_every_number_on_the_command_line_has_its_limits() -> None:
    """So that one that makes no sense is told at once, and not by what fails for it."""
    found = [*_options("lookout", cli)]
    assert len(found) > 100
    for where, option in found:
        if isinstance(option.type, (type(click.INT), type(click.FLOAT))):
            assert isinstance(option.type, click.IntRange | click.FloatRange), where


def _options(path: str, command: click.Command) -> Iterator[tuple[str, click.Parameter]]:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _options(f"{path} {name}", inner)
    yield from ((f"{path} {option.name}", option) for option in command.params)
