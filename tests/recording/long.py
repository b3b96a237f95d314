"""`python -m tests.recording.long --hours 3`: eight cameras are recorded while everything around them goes wrong.

Cameras are switched off and on, freeze, and change their codec and size. Sources are recorded in another way, are
removed and added. Processes are killed, the index is removed, and the daemon is stopped, killed and started again.

At the end: for each source what is recorded and the gaps make all the time that it was to be recorded, without a hole
or an overlap; each file has as much video as its time on the timeline; every byte is as it was written.

A run in a folder that stays (`--keep`) goes on where an earlier one ended or was cut off: on the same store, with the
hours that are left. What lies between the two is time in which the daemon was away.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep, time_ns
from typing import Any

import click
import psutil
import yaml

from daemon.recording.errors import StoreError
from daemon.recording.records import Gap
from daemon.recording.scan import scan
from daemon.recording.store import Store
from daemon.recording.timeline import Span
from tests.support import clips
from tests.support.daemon import Lookout, wait_until
from tests.support.recorded import SECOND, encoded
from tests.support.rtsp import RtspServer
from tests.support.stored import Stored

_CAMERAS = 8
_CHILDREN = ("daemon.capture.processes.main", "daemon.recording.process.main", "daemon.recording.streams.main")
_MODES: list[Any] = ["continuous", "continuous", "events", "off"]
_SLACK_S = 15.0  # until a source that was added, or a daemon that has begun, is in the index
_ALIKE_S = 0.5  # of a file: what it has, and its time on the timeline


class Progress:
    """How far the runs in a folder are: a file there.

    Args:
        folder: of the runs.

    Attributes:
        began: each source, and since when it is recorded, UTC ns.
        worked_s: seconds of trouble, of all runs.
        runs: how many there were, with this one.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "progress.json"
        told = json.loads(self._path.read_text()) if self._path.exists() else {}
        self.began: dict[str, int] = told.get("began", {})
        self.worked_s: float = told.get("worked_s", 0.0)
        self.runs: int = told.get("runs", 0) + 1

    def write(self) -> None:
        told = {"began": self.began, "worked_s": self.worked_s, "runs": self.runs}
        written = self._path.with_suffix(".new")
        written.write_text(json.dumps(told))
        written.replace(self._path)


def _larger(path: Path) -> None:
    clips.pattern(path, seconds=120, size="640x360")


class Trouble:
    """The daemon, its cameras, and what happens to them."""

    def __init__(self, folder: Path, stack: ExitStack, seed: int) -> None:
        self.progress = Progress(folder)
        self.chance, self.count = random.Random(seed + self.progress.runs), Counter[str]()
        self.videos = {
            "h264": encoded(folder, "h264", seconds=120),
            "h264-b": encoded(folder, "h264-b", seconds=120),
            "h265": encoded(folder, "hevc", seconds=120),
            "larger": clips.once(folder, "larger.mkv", _larger),
        }
        self.cameras = [RtspServer({"cam": self.videos["h264"]}) for _ in range(_CAMERAS)]
        for camera in self.cameras:
            stack.callback(camera.kill)
        self.stored = Stored(folder / "store")
        self.sources = [self._source(number, "continuous") for number in range(_CAMERAS)]
        self.began = self.progress.began = (
            dict.fromkeys((row["id"] for row in self.sources), time_ns()) | self.progress.began
        )
        self._due: list[tuple[float, Callable[[], None]]] = []  # what puts things right again
        self.lookout = stack.enter_context(Lookout(folder, self._config(folder)))

    def _source(self, number: int, mode: str) -> dict[str, Any]:
        url = self.cameras[number].url("cam")
        record: dict[str, Any] = {"mode": mode, **({"url": url} if number % 4 == 3 else {})}
        return {"id": f"cam-{number}", "type": "av", "url": url, "read_timeout_s": 3, "record": record}

    def _config(self, folder: Path) -> dict[str, object]:
        return {
            "sources": self.sources,
            "capture_processes": 2,
            "model": {"path": "none", "backend": "fake"},
            "reconnect": {"initial_s": 0.2, "max_s": 1},
            "record": {"stores": {"main": {"path": str(folder / "store"), "min_free_gib": 0, "max_gib": 2}}},
        }

    def wait(self, seconds: float) -> None:
        until = monotonic() + seconds
        while (left := until - monotonic()) > 0:
            self._due.sort(key=lambda row: row[0])
            while self._due and self._due[0][0] <= monotonic():
                self._due.pop(0)[1]()
            sleep(min(left, 0.2))

    def go_on(self, hours: float) -> None:
        """One trouble after another, until they have lasted so long in all runs together.

        Raises:
            RuntimeError: The daemon has ended.
        """
        before = monotonic()
        self.wait(5)
        while self.progress.worked_s < hours * 3600:
            if (code := self.lookout.process.poll()) is not None:
                raise RuntimeError(f"the daemon has ended: {code}")
            self.begin_one()
            self.wait(self.chance.uniform(0.2, 6))
            now = monotonic()
            self.progress.worked_s += now - before
            before = now
            self.progress.write()

    def put_right(self) -> None:
        """Everything that was broken for a while works again."""
        while self._due:
            self._due.pop(0)[1]()

    # --- troubles --------------------------------------------------------------------------------------------------

    def drop(self) -> None:
        """A camera is away for a while, and may be another one afterwards."""
        camera = self.chance.choice(self.cameras)
        camera.kill()
        kind = self.chance.choice([*self.videos])
        camera.serve({"cam": self.videos[kind]}, "h265" if kind == "h265" else "h264")
        self._later(self.chance.uniform(0, 8), partial(_start, camera))

    def freeze(self) -> None:
        camera = self.chance.choice(self.cameras)
        with suppress(AssertionError):  # it is away
            camera.freeze()
            self._later(self.chance.uniform(1, 6), partial(_start, camera))

    def kill_child(self) -> None:
        module = self.chance.choice(_CHILDREN)
        for child in self.lookout.children(module):
            with suppress(psutil.Error):
                child.kill()

    def change_modes(self) -> None:
        """By a reload; also of sources that are added and removed."""
        for number, row in enumerate(self.sources):
            if self.chance.random() < 0.3:
                self.sources[number] = self._source(number, self.chance.choice(_MODES)) | {
                    "enabled": row.get("enabled", True)
                }
            if number and self.chance.random() < 0.1:  # a daemon without a source does not start
                self.sources[number] = self.sources[number] | {"enabled": not row.get("enabled", True)}
        self._reload()

    def lose_index(self) -> None:
        for path in self.stored.folder.glob("index.sqlite*"):
            path.unlink(missing_ok=True)

    def stop(self) -> None:
        assert self.lookout.stop() == 0
        self.wait(self.chance.uniform(0, 3))
        self.lookout.restart()

    def kill_all(self) -> None:
        processes = [self.lookout.inspect, *self.lookout.inspect.children(recursive=True)]
        self.chance.shuffle(processes)
        for process in processes:
            with suppress(psutil.Error):
                process.kill()
        self.lookout.process.wait(60)
        psutil.wait_procs(processes, 60)
        self.wait(self.chance.uniform(0, 3))
        self.lookout.restart()

    def begin_one(self) -> None:
        troubles = [self.drop] * 8 + [self.freeze] * 3 + [self.kill_child] * 4 + [self.change_modes] * 2
        trouble = self.chance.choice([*troubles, self.lose_index, self.stop, self.kill_all])
        self.count[trouble.__name__] += 1
        trouble()

    def calm(self) -> None:
        """All is recorded in the end."""
        self.put_right()
        self.sources = [self._source(number, "continuous") for number in range(_CAMERAS)]
        self._reload()
        since = time_ns()
        wait_until(
            lambda: all(self._is_recorded(row["id"], since) for row in self.sources), "all are recorded again", 120
        )

    def _is_recorded(self, source: str, since: int) -> bool:
        with suppress(StoreError):
            return bool(files := self.stored.files(source)) and files[-1].end > since
        return False

    def _later(self, seconds: float, work: Callable[[], None]) -> None:
        self._due.append((monotonic() + seconds, work))

    def _reload(self) -> None:
        written = yaml.safe_load(self.lookout.config.read_text())
        written["sources"] = self.sources
        self.lookout.config.write_text(yaml.safe_dump(written))
        if b"SigCgt" in Path(f"/proc/{self.lookout.process.pid}/status").read_bytes():
            os.kill(self.lookout.process.pid, signal.SIGHUP)


def _start(camera: RtspServer) -> None:
    camera.kill()
    camera.start()


def judge(trouble: Trouble, ended: int) -> list[str]:
    """What is wrong."""
    stored, problems = trouble.stored, list[str]()
    for source, began in trouble.began.items():
        try:
            rows = stored.check_whole(source, began + round(_SLACK_S * SECOND), ended - SECOND)
        except AssertionError as error:
            problems.append(f"{source}: {error}")
            continue
        seconds = Counter[str]()
        for row in rows:
            seconds["recorded" if isinstance(row, Span) else row.cause] += row.end - row.begin
        told = ", ".join(f"{name} {ns / SECOND:.1f} s" for name, ns in seconds.items())
        click.echo(f"{source}: {told}, in {len(rows)} parts")
        if sum(seconds.values()) != rows[-1].end - rows[0].begin:
            problems.append(f"{source}: {seconds} do not add up")
        problems += [f"{source}: {row}" for row in rows if isinstance(row, Gap) and row.cause == "expired"]
    with closing(Store.open(stored.folder, makes=False)) as store:
        for path in store.files():
            found = scan(store, path)
            here = sum(row.end - row.begin for row in found.fragments) / SECOND
            if abs(here - (found.facts.end - found.facts.begin) / SECOND) > _ALIKE_S:
                problems.append(
                    f"{path}: {here:.2f} s of video, {(found.facts.end - found.facts.begin) / SECOND:.2f} s long"
                )
    problems += [str(row) for row in stored.told("verify")["problems"]]
    log = trouble.lookout.log()
    problems += ["a traceback is in the log"] if "Traceback" in log else []
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=3.0, help="of trouble, with those of earlier runs in the folder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="work in this folder, which stays")
    args = parser.parse_args()
    with ExitStack() as stack:
        folder = args.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lookout-long-")))
        folder.mkdir(exist_ok=True)
        trouble = Trouble(folder, stack, args.seed)
        try:
            trouble.go_on(args.hours)
        except RuntimeError as error:
            click.echo("\n".join([*trouble.lookout.log().splitlines()[-40:], str(error)]))
            return 1
        trouble.calm()
        ended = time_ns()
        code = trouble.lookout.stop()
        problems = [f"exit code {code}"] if code else []
        problems += judge(trouble, ended)
        click.echo(", ".join(f"{count} times {name}" for name, count in trouble.count.items()))
        click.echo(f"{trouble.progress.worked_s / 3600:.2f} hours of trouble, in {trouble.progress.runs} runs")
        for problem in problems:
            click.echo(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
