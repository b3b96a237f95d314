"""README's commands and its subscriber, run in a clone as they stand there, and after them those of operations.md for
one's own camera. What a test cannot do is replaced in one place."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from daemon.sources.scene import Scene
from lookout.client import Subscriber
from lookout.messages import Detections
from tests.support import clips
from tests.support.checkout import alone, copy_of_tree, environment, install, repository_of
from tests.support.daemon import PATIENCE_S, ROOT, receive_until
from tests.support.ports import free_port
from tests.support.rtsp import RtspServer

README = (ROOT / "README.md").read_text(encoding="utf-8")
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def _blocks(text: str, language: str) -> list[str]:
    return [token.content for token in MarkdownIt().parse(text) if token.type == "fence" and token.info == language]


_INSTALLED = ".venv/base"  # make's mark that Lookout is installed


def _street(path: Path) -> Path:
    """A drawn street, which the demo model knows, as a camera sends it."""
    scene = Scene(640, 360, seed=1001, fps=15)
    raw = b"".join(scene.draw(number).tobytes() for number in range(60))
    form = ["-f", "rawvideo", "-pix_fmt", "bgr24", "-s", "640x360", "-r", "15", "-i", "-"]
    code = ["-c:v", "libx264", "-g", "15", "-preset", "ultrafast", "-tune", "zerolatency", "-pix_fmt", "yuv420p"]
    subprocess.run(["ffmpeg", "-v", "error", *form, *code, str(path)], input=raw, check=True)
    return path


@pytest.fixture
def camera(folder_of_all: Path) -> Iterator[str]:
    server = RtspServer({"stream1": clips.once(folder_of_all, "street.mkv", _street)})
    yield server.url("stream1")
    server.kill()


class Reader:
    """Somebody who types what README says. A `run` goes on in a terminal of its own until the reader has seen
    detections, and has watched where the next line says so; then comes Ctrl-C.

    Args:
        replaced: texts of README, by what a test has in their place.
    """

    def __init__(self, folder: Path, replaced: dict[str, str], endpoint: str) -> None:
        self.folder, self.endpoint = folder, endpoint
        self._replaced = replaced
        self._daemon: subprocess.Popen[bytes] | None = None

    def types(self, line: str) -> str:
        """Returns what it printed, nothing for a `run`."""
        for old, new in self._replaced.items():
            line = line.replace(old, new)
        words = re.sub(r"\s+#.*", "", line)
        if " watch" in words:
            return self._watches(words)
        self.interrupts()
        if " run " in words:
            self._daemon = self._starts(words)
            self._sees_boxes()
            return ""
        done = subprocess.run(["bash", "-ec", f"{words}\npwd"], cwd=self.folder, env=alone(), timeout=PATIENCE_S,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)  # fmt: skip
        assert done.returncode == 0, f"{words}\n{done.stdout}"
        *printed, where = done.stdout.splitlines()
        self.folder = Path(where)
        return "\n".join(printed)

    def _starts(self, words: str, stdout: int | None = None) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["bash", "-c", f"exec {words}"], cwd=self.folder, env=alone(), stdout=stdout)

    def subscribes(self, program: str) -> str:
        """Run a program beside the daemon until it has printed a line."""
        for old, new in self._replaced.items():
            program = program.replace(old, new)
        words = [str(self.folder / ".venv" / "bin" / "python"), "-c", program]
        running = subprocess.Popen(words, cwd=self.folder, env=alone(), stdout=subprocess.PIPE, text=True)
        assert running.stdout is not None
        line = running.stdout.readline()
        running.kill()
        running.communicate(timeout=PATIENCE_S)
        return line

    def _sees_boxes(self) -> None:
        with Subscriber(self.endpoint, kinds=("detections",)) as subscriber:
            receive_until(subscriber, lambda message: isinstance(message, Detections) and bool(message.detections))

    def _watches(self, words: str) -> str:
        assert self._daemon is not None, "watch wants a daemon that runs"
        watching = self._starts(f"{words} --json", stdout=subprocess.PIPE)
        assert watching.stdout is not None
        line = next((line for line in watching.stdout if b"lookout.detections/1" in line), b"")
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=PATIENCE_S)
        return line.decode()

    def interrupts(self) -> None:
        """Ctrl-C, which ends a daemon well."""
        daemon, self._daemon = self._daemon, None
        if daemon is not None:
            daemon.send_signal(signal.SIGINT)
            assert daemon.wait(PATIENCE_S) == 0

    def leaves(self) -> None:
        if self._daemon is not None:
            with suppress(subprocess.TimeoutExpired):
                self._daemon.kill()
                self._daemon.wait(PATIENCE_S)


def test_the_blocks_are_those_that_are_tried() -> None:
    """A block without its language would not be."""
    blocks = [token for token in MarkdownIt().parse(README) if token.type in ("fence", "code_block")]
    assert [token.info for token in blocks] == ["sh", "json", "python"]


@pytest.mark.slow(30)
@pytest.mark.needs("ffmpeg", "rtsp")
def test_what_readme_says_works(camera: str, tmp_path: Path) -> None:
    (text,), (program,) = _blocks(README, "sh"), _blocks(README, "python")
    clone, demonstrate, *own = text.splitlines()
    kept = _blocks(OPERATIONS, "sh")[0].splitlines()
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    replaced = {
        "<this repository>": str(repository_of(copy_of_tree(tmp_path / "origin"))),
        # python -m tests.image.debian runs all 20 s of the demo.
        "make demo": "make --no-print-directory --dry-run demo && .venv/bin/lookout demo --seconds 2",
        "lookout cameras --usb": "lookout cameras --usb || [ $? = 1 ]",  # where there is no camera
        "rtsp://192.0.2.10/stream1": camera,
        " --dashboard": "",  # its port may be another test's, and tests of the page start it
        '"tcp://127.0.0.1:5556"': f'"{endpoint}"',
        " --model yolox_tiny": "",  # both are fetched from their makers: here is the model that comes with Lookout
        f"run {camera}": f"run {camera} --model models/demo.onnx --endpoint {endpoint}",
        "lookout watch": f"lookout watch {endpoint}",
    }
    reader = Reader(tmp_path, replaced, endpoint)
    try:
        assert clone.startswith("git clone")
        reader.types(clone)
        _install(reader.folder)
        demo = reader.types(demonstrate)
        assert demo.splitlines()[0] == ".venv/bin/lookout demo"  # all that make would do
        assert re.search(r"recall (0\.9|1\.0)", demo)  # it is right about what it sees
        printed = [reader.types(line) for line in own]
        assert json.loads(printed[-1])["source"] == "127.0.0.1"
        assert re.match(r"127\.0\.0\.1 \d+ \[", reader.subscribes(program))
        printed = [reader.types(line) for line in kept]
        assert "Load, measured just now" in printed[2]
        assert camera in (reader.folder / "mine.yaml").read_text()
        reader.interrupts()
    finally:
        reader.leaves()


def _install(clone: Path) -> None:
    """As make would, with the packages that are here."""
    install(environment(clone / ".venv"), "--editable", str(clone / "client"), "--editable", str(clone))
    (clone / _INSTALLED).touch()
    (clone / _INSTALLED).with_name("http").touch()


def test_commands_within_sentences_are_ones_that_exist() -> None:
    """Those that want root or a container are looked at, and not run."""
    spans = [
        child.content
        for token in MarkdownIt("gfm-like", {"linkify": False}).parse(README)
        for child in token.children or ()
        if child.type == "code_inline"
    ]
    commands = [span for span in spans if re.match(r"(sudo |make |docker |pip |systemctl )", span)]
    assert len(commands) > 3
    for command in commands:
        subprocess.run(["bash", "-n"], input=command, text=True, check=True, capture_output=True)
        if found := re.match(r"(?:sudo )?make ([a-z-]+)$", command):
            subprocess.run(["make", "--dry-run", "-C", str(ROOT), found[1]], check=True, capture_output=True)
