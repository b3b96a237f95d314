"""`lookout batch` without a coordinator, in processes of its own."""

from __future__ import annotations

import fcntl
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from daemon.batch.records import Header
from daemon.batch.writer import ResultWriter
from daemon.capture.processes.run import PROGRAM
from daemon.cli import invoke
from daemon.pipeline.ledger import Counts
from lookout.messages import Detections, Event, Status
from tests.batch.archive import TRACKED, configure, differing, draw, results, run, start
from tests.support.daemon import DEMO_MODEL, ROOT, Lookout, children_of, receive_until, wait_until
from tests.support.models import black_clip, hidden_model

HEAD = ROOT / "tests" / "data" / "heads" / "yolov8.onnx"
Refused = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five recordings, two of the same name, one cut short, and one that is none."""
    folder = tmp_path_factory.mktemp("archive")
    for seed, name in enumerate(("a/1.mp4", "b/1.mp4", "b/2.mkv")):
        draw(folder / name, seed, 12)
    whole = draw(folder / "whole.mkv", 7, 40)
    (folder / "short.mkv").write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    (folder / "none.mp4").write_bytes(b"no video")
    return folder


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """Runs `lookout batch` in this process; returns the exit code and what it has written."""

    def call(*arguments: str | Path) -> tuple[int, str]:
        code = invoke(["batch", *map(str, arguments)])
        return code, capsys.readouterr().err

    return call


def test_an_archive(archive: Path, tmp_path: Path, refused: Refused) -> None:
    """All results, one failure with its reason; then the same command has next to nothing to do."""
    config, out = configure(tmp_path, batch={"source": TRACKED}), tmp_path / "out"
    code, words = run(archive, "--out", out, "-c", config)
    assert code == 1, words
    found = results(out)
    assert sorted(found) == ["a/1.mp4.jsonl", "b/1.mp4.jsonl", "b/2.mkv.jsonl", "short.mkv.jsonl", "whole.mkv.jsonl"]
    assert "5 of 6 clips have results" in words
    assert "failed: none.mp4: cannot open none.mp4" in words
    footers = {name: msgspec.json.decode(content.splitlines()[-1]) for name, content in found.items()}
    assert [name for name, footer in footers.items() if not footer["complete"]] == ["short.mkv.jsonl"]
    assert footers["short.mkv.jsonl"]["ended"].startswith("cut short: it ends after ")
    assert footers["whole.mkv.jsonl"]["analysed"] == 40
    assert footers["whole.mkv.jsonl"]["events"] > 0
    assert sorted(path.name for path in (out / ".lookout-batch").iterdir()) == ["folder", "journal.jsonl", "lock"]

    (out / "b/1.mp4.jsonl").unlink()
    code, words = run(archive, "--out", out, "-c", config, "--at-once", "1")
    assert code == 1, words
    assert "4 of 6 results are there already" in words
    assert differing(results(out), found) == []

    code, words = refused(archive, "--out", out, "-c", configure(tmp_path, batch={"source": {"tracking": True}}))
    assert (code, words.count("\n")) == (2, 1)
    assert "has other settings (source.rules): name another folder with --out, or remove it" in words


def test_boxes_that_no_picture_has_are_counted(tmp_path: Path) -> None:
    """In the footer, for each clip."""
    model = hidden_model(tmp_path / "model.onnx", (1, 1, 9, 9, 0.9, 1), (9, 9, 1, 1, 0.9, 0), (1, 1, 9, 9, 0.8, 7))
    config = configure(tmp_path, model={"path": str(model), "backend": "cpu", "threads": 1})
    code, words = run(black_clip(tmp_path / "night.mp4", 6), "--out", tmp_path / "out", "-c", config)
    assert code == 0, words
    footer = msgspec.json.decode(results(tmp_path / "out")["night.mp4.jsonl"].splitlines()[-1])
    assert (footer["analysed"], footer["boxes"], footer["bad_boxes"]) == (6, 6, 12)


def test_a_model_whose_every_box_is_impossible_is_an_error(tmp_path: Path) -> None:
    """A clip in which it finds nothing at all has a result."""
    model = hidden_model(tmp_path / "model.onnx", (9, 9, 1, 1, 0.9, 0))
    config = configure(tmp_path, model={"path": str(model), "backend": "cpu", "threads": 1})
    clips = black_clip(tmp_path / "night.mp4", 6), draw(tmp_path / "day.mp4", 0, 6)
    code, words = run(*clips, "--out", tmp_path / "out", "-c", config)
    assert code == 1, words
    assert "failed: night.mp4: all 6 boxes are impossible, with corners the wrong way round" in words
    assert list(results(tmp_path / "out")) == ["day.mp4.jsonl"]


@pytest.mark.long
def test_two_models_give_what_each_gives_alone(tmp_path: Path, refused: Refused) -> None:
    """A line of each for every frame, in two capture processes or in none."""
    models = {
        "street": {"path": str(DEMO_MODEL), "threads": 1},
        "small": {"path": str(HEAD), "confidence": 0.01, "threads": 1},
    }
    keys: dict[str, Any] = {
        "model": None,
        "models": models,
        "batch": {"source": {**TRACKED, "tracking": {"model": "street"}}},
    }
    for number in range(3):
        draw(tmp_path / f"in/{number}.mkv", number, 20)
    code, words = run(tmp_path / "in", "--out", tmp_path / "both", "-c", configure(tmp_path, **keys))
    assert code == 0, words
    found = results(tmp_path / "both")
    lines = [msgspec.json.decode(line) for line in found["0.mkv.jsonl"].splitlines()]
    assert ([*lines[0]["models"]], lines[0]["model"]["id"]) == (["small", "street"], "small")
    assert [*lines[0]["settings"]["models"]] == ["small", "street"]
    looks = [line for line in lines if "detections" in line]
    assert [(line["seq"], line["model"]["id"]) for line in looks] == [
        (n, m) for n in range(20) for m in ("small", "street")
    ]
    footer = lines[-1]
    assert (footer["frames"], footer["analysed"], footer["complete"]) == (20, 20, True)
    assert footer["events"] == sum("rule" in line for line in lines) > 0
    assert {name: row["analysed"] for name, row in footer["models"].items()} == {"small": 20, "street": 20}
    assert (
        sum(row["boxes"] for row in footer["models"].values())
        == footer["boxes"]
        == sum(len(line["detections"]) for line in looks)
    )

    keys["capture_processes"] = 2
    code, words = run(tmp_path / "in", "--out", tmp_path / "again", "-c", configure(tmp_path, **keys), "--at-once", "2")
    assert (code, differing(results(tmp_path / "again"), found)) == (0, []), words
    keys["batch"] = {"source": {}}
    code, words = run(
        tmp_path / "in", "--out", tmp_path / "small", "-c", configure(tmp_path, **keys), "--model", "small"
    )
    assert code == 0, words
    alone = [msgspec.json.decode(line) for line in results(tmp_path / "small")["0.mkv.jsonl"].splitlines()]
    seen = [line for line in looks if line["model"]["id"] == "small"]
    assert [line["detections"] for line in alone[1:-1]] == [line["detections"] for line in seen]
    assert any(line["detections"] for line in seen)

    file = configure(tmp_path, **keys)
    for options, words in (
        (["--model", "large"], "--model: there is no model 'large' (small, street)"),
        (["--coordinator", "etcd://127.0.0.1:1"], "etcd does not answer"),  # and nothing else is wrong
        (["--labels", "coco"], "--labels: the configuration has `models`: set the labels of each there"),
        (["--model", "street"], "has other settings (models.small.confidence, models.small.digest, source.rules, "),
    ):
        code, said = refused(tmp_path / "in", "--out", tmp_path / "both", "-c", file, *options)
        assert (code, said.count("\n"), words in said) == (2, 1, True), said


def test_a_result_is_that_of_a_lossless_replay(archive: Path, tmp_path: Path) -> None:
    """The same recording by `lookout run`, received over the wire, gives the same bytes."""
    clip = archive / "whole.mkv"
    code, words = run(clip, "--out", tmp_path / "out", "-c", configure(tmp_path, batch={"source": TRACKED}))
    assert code == 0, words
    written = results(tmp_path / "out")["whole.mkv.jsonl"].splitlines()
    config: dict[str, object] = {
        "model": {"path": str(DEMO_MODEL), "backend": "cpu", "threads": 1},
        "sources": [{"id": "clip", "type": "av", "url": str(clip), "pace": "fast", **TRACKED}],
        "capture_processes": 0,
        "board": {"mode": "lossless"},
        "publisher": {"wait_for_subscriber_s": 20, "high_water_mark": 100_000},
    }
    lines: list[bytes] = []
    writer = ResultWriter(msgspec.json.decode(written[0], type=Header), lines.append)
    with Lookout(tmp_path, config) as lookout, lookout.subscribe("detections", "status", "events") as subscriber:
        messages = receive_until(subscriber, lambda message: getattr(message, "state", None) == "ended")
        while (message := subscriber.receive(2.0)) is not None:  # topics are not in order with each other
            messages.append(message)
    for message in messages:
        if isinstance(message, Detections):
            writer.detections(message)
        elif isinstance(message, Event):
            writer.event(message)
    last = [message for message in messages if isinstance(message, Detections)][-1]
    formats = [message.format for message in messages if isinstance(message, Status) and message.format]
    writer.finish(None, formats[0], {"": Counts(40, 40, last.dropped)})
    assert [line.rstrip() for line in lines] == written


def test_a_killed_run_leaves_no_half_result(tmp_path: Path, refused: Refused) -> None:
    """SIGKILL while it writes; the next run goes on, and removes what is left. SIGTERM ends the next one at once."""
    for number in range(2):
        draw(tmp_path / f"archive/{number}.mkv", number, 250)
    config, out, log = configure(tmp_path), tmp_path / "out", tmp_path / "log"

    def parts() -> list[Path]:
        return [*(out / ".lookout-batch").glob("*.part")]

    def is_writing() -> bool:
        return any(_is_locked(path) for path in parts())

    for number in (signal.SIGKILL, signal.SIGTERM):
        process = start(tmp_path / "archive", "--out", out, "-c", config, log=log)
        wait_until(is_writing, "it writes a result")
        process.send_signal(signal.SIGSTOP)
        code, words = refused(tmp_path / "archive", "--out", out, "-c", config)
        assert (code, "another `lookout batch` works in" in words) == (2, True), words
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        assert process.wait(60) == (-signal.SIGKILL if number == signal.SIGKILL else 5), log.read_text()
        assert results(out) == {}
    assert parts() == []
    assert "stopped; the same command goes on from here" in log.read_text()


@pytest.mark.long
def test_a_capture_process_that_crashes_costs_an_attempt(tmp_path: Path) -> None:
    """It is killed while clips play: all of them are played again, and the results are the same."""
    for number in range(6):
        draw(tmp_path / f"archive/{number}.mkv", number, 200)
    config, out, log = configure(tmp_path, capture_processes=1), tmp_path / "out", tmp_path / "log"
    process = start(tmp_path / "archive", "--out", out, "-c", config, "--at-once", "3", log=log)
    wait_until(lambda: process.poll() is not None or results(out), "there is a result")
    children_of(process.pid, PROGRAM)[0].kill()
    assert process.wait(120) == 0, log.read_text()
    assert (out / ".lookout-batch/journal.jsonl").read_text().count('"claimed"') > 6
    code, words = run(tmp_path / "archive", "--out", tmp_path / "alone", "-c", configure(tmp_path))
    assert code == 0, words
    assert differing(results(out), results(tmp_path / "alone")) == []


def _is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["absent.mp4", "--out", "{out}"], "'absent.mp4' is no recording, folder or pattern that exists here"),
        (["{clip}", "--out", "{out}", "-c", "absent.yaml"], "config absent.yaml does not exist"),
        (["{clip}", "--out", "{clip}"], "is a file"),
        (["{clip}", "--out", "{out}", "--coordinator", "http://x"], "fleet.coordinator: 'http://x' is none of"),
        (["{clip}", "--out", "{out}", "--coordinator", "kubernetes://x"], "cannot share out a batch"),
        (["{clip}", "--out", "{out}", "--coordinator", "etcd://127.0.0.1:1"], "etcd does not answer"),
    ],
)
def test_what_a_user_can_mistake_is_one_line(
    arguments: list[str], words: str, archive: Path, tmp_path: Path, refused: Refused
) -> None:
    filled = [text.format(out=tmp_path / "out", clip=archive / "a/1.mp4") for text in arguments]
    options = [] if "-c" in filled else ["-c", str(configure(tmp_path))]
    code, said = refused(*filled, *options)
    assert (code, said.count("\n")) == (2, 1)
    assert words in said
