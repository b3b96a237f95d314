"""A batch that several processes share through a real etcd."""

from __future__ import annotations

import random
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from daemon.cli import invoke
from daemon.system.stop_token import StopToken
from tests.batch.archive import TRACKED, configure, differing, draw, results, run, start
from tests.fleet.etcd_server import EtcdServer
from tests.support.daemon import wait_until
from tests.support.zygote import Started

pytestmark = pytest.mark.needs("etcd-server", "etcd-client")
_numbers = count()
_FAKE = {"path": "none.onnx", "backend": "fake"}


class Batch:
    """The processes of one batch.

    Attributes:
        log: what they have written.
    """

    def __init__(self, folder: Path, etcd: EtcdServer, config: Path) -> None:
        self.archive, self.log, self._etcd = folder / "archive", folder / "log", etcd
        self.name = f"batch-{next(_numbers)}"
        coordinator = ["--coordinator", f"etcd://127.0.0.1:{etcd.port}", "--batch", self.name]
        self._arguments: list[str | Path] = [self.archive, "-c", config, *coordinator]
        self.processes: list[Started] = []

    def start(self, out: Path) -> Started:
        self.processes.append(start(*self._arguments, "--out", out, log=self.log))
        return self.processes[-1]

    def run(self, out: Path, *more: str) -> int:
        """In this process."""
        return invoke(["batch", *map(str, self._arguments), "--out", str(out), *more])

    def keys(self, kind: str) -> list[str]:
        rows = self._etcd.ctl("get", "--prefix", "--print-value-only", f"/lookout-batch/lookout/v1/{self.name}/{kind}/")
        return rows.split()

    def claims_of(self, process: Started) -> int:
        return sum(f"-{process.pid}-" in worker for worker in self.keys("claims"))

    def kill_while_it_works(self, process: Started) -> None:
        wait_until(lambda: process.poll() is not None or self.claims_of(process), "it has claimed clips")
        assert process.poll() is None, self.log.read_text()
        process.kill()
        assert process.wait(60) == -signal.SIGKILL

    def advance(self, seconds: float) -> None:
        """Let the processes work for a while."""
        StopToken().wait(seconds)

    def wait(self, processes: Sequence[Started]) -> None:
        for process in processes:
            assert process.wait(120) == 0, self.log.read_text()


@contextmanager
def _batch(folder: Path, etcd: EtcdServer, config: Path) -> Iterator[Batch]:
    made = Batch(folder, etcd, config)
    try:
        yield made
    finally:
        for process in made.processes:
            process.kill()
            process.wait()


def test_sixty_clips_on_three_members_one_killed_twice(etcd: EtcdServer, tmp_path: Path) -> None:
    """Sixty result files, each equal to that of a lossless replay alone."""
    _share_sixty(etcd, tmp_path, configure(tmp_path, batch={"lease_s": 2, "at_once": 3}, model=_FAKE))


@pytest.mark.long
def test_sixty_tracked_clips_with_a_model(etcd: EtcdServer, tmp_path: Path) -> None:
    """The same with the demo model, tracks and a rule."""
    _share_sixty(etcd, tmp_path, configure(tmp_path, batch={"source": TRACKED, "lease_s": 2, "at_once": 3}))


def _share_sixty(etcd: EtcdServer, folder: Path, config: Path) -> None:
    archive, out = folder / "archive", folder / "out"
    for number in range(60):
        draw(archive / f"{number % 7}/{number % 9}-{number}.mkv", number, 4 + number % 5)
    with _batch(folder, etcd, config) as batch:
        batch.kill_while_it_works(batch.start(out))
        second = batch.start(out)
        wait_until(lambda: second.poll() is not None or batch.claims_of(second), "the second one has claimed clips")
        others = [batch.start(out), batch.start(out)]
        batch.kill_while_it_works(second)
        batch.wait([*others, batch.start(out)])
    code, words = run(archive, "--out", folder / "alone", "-c", config, "--at-once", "1")
    assert code == 0, words
    assert len(results(out)) == 60
    assert differing(results(out), results(folder / "alone")) == []
    assert [*(out / ".lookout-batch").glob("*.part")] == []
    assert "60 of 60 clips have results, 60 of them in" in batch.log.read_text()


@pytest.mark.long
def test_members_with_folders_of_their_own(
    etcd: EtcdServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each clip has a result in one of them; one that is stopped gives its clips to the other at once."""
    for number in range(8):
        draw(tmp_path / f"archive/{number}.mkv", number, 30)
    config = configure(tmp_path, batch={"lease_s": 60, "at_once": 2})
    with _batch(tmp_path, etcd, config) as batch:
        first = batch.start(tmp_path / "one")
        wait_until(lambda: first.poll() is not None or batch.claims_of(first), "it has claimed clips")
        first.terminate()
        assert first.wait(60) == 5, batch.log.read_text()
        assert (batch.keys("claims"), batch.keys("workers")) == ([], [])
        assert batch.keys("attempts").count("1") == len(batch.keys("outcomes"))
        batch.wait([batch.start(tmp_path / "one"), batch.start(tmp_path / "two")])
        found = [results(tmp_path / name) for name in ("one", "two")]
        assert not found[0].keys() & found[1].keys()
        assert len(found[0]) + len(found[1]) == 8
        assert batch.run(tmp_path / "three") == 0
        assert "8 of 8 clips have results, 0 of them in" in capsys.readouterr().err
        assert batch.run(tmp_path / "four", "--model", str(_other_model(tmp_path))) == 2
        assert re.fullmatch(
            r"lookout: batch .* has other clips, settings, or another model.*\n", capsys.readouterr().err
        )


def _other_model(folder: Path) -> Path:
    """The demo model, with one byte more of metadata."""
    import onnx

    from tests.support.daemon import DEMO_MODEL

    model = onnx.load(str(DEMO_MODEL))
    model.doc_string = "another"
    onnx.save(model, str(folder / "other.onnx"))
    return folder / "other.onnx"


@pytest.mark.long
def test_an_etcd_that_is_away_for_a_while(etcd_alone: EtcdServer, tmp_path: Path) -> None:
    """It is killed while clips play, longer than the lease; the batch goes on when it is back."""
    for number in range(4):
        draw(tmp_path / f"archive/{number}.mkv", number, 250)
    config = configure(tmp_path, batch={"lease_s": 2, "at_once": 2})
    with _batch(tmp_path, etcd_alone, config) as batch:
        process = batch.start(tmp_path / "out")
        wait_until(lambda: process.poll() is not None or batch.claims_of(process), "it has claimed clips")
        etcd_alone.kill()
        wait_until(lambda: "are left to other workers" in batch.log.read_text(), "the claims end")
        etcd_alone.start()
        batch.wait([process])
        assert len(results(tmp_path / "out")) == 4
        assert "the coordinator is back" in batch.log.read_text()


@pytest.mark.long
def test_a_member_that_is_frozen_publishes_nothing_of_what_it_lost(etcd: EtcdServer, tmp_path: Path) -> None:
    """SIGSTOP for longer than the lease, then SIGCONT."""
    for number in range(4):
        draw(tmp_path / f"archive/{number}.mkv", number, 200)
    config = configure(tmp_path, batch={"lease_s": 2, "at_once": 2})
    with _batch(tmp_path, etcd, config) as batch:
        frozen = batch.start(tmp_path / "one")
        wait_until(lambda: frozen.poll() is not None or batch.claims_of(frozen), "it has claimed clips")
        frozen.send_signal(signal.SIGSTOP)
        other = batch.start(tmp_path / "two")
        batch.wait([other])
        frozen.send_signal(signal.SIGCONT)
        batch.wait([frozen])
    assert results(tmp_path / "one").keys() & results(tmp_path / "two").keys() == set()
    assert len({**results(tmp_path / "one"), **results(tmp_path / "two")}) == 4


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_any_history_ends_with_the_same_results(seed: int, etcd: EtcdServer, tmp_path: Path) -> None:
    """Members are killed, stopped, frozen and started at random, in one folder and in another."""
    chance = random.Random(seed)
    for number in range(30):
        draw(tmp_path / f"archive/{number}.mkv", number, 20 + number)
    config = configure(tmp_path, batch={"lease_s": 2, "at_once": 3})
    folders = [tmp_path / "one", tmp_path / "one", tmp_path / "two"]
    with _batch(tmp_path, etcd, config) as batch:
        running: list[Started] = []
        for _ in range(12):
            running = [process for process in running if process.poll() is None]
            if len(running) < 3:
                running.append(batch.start(chance.choice(folders)))
            batch.advance(chance.uniform(0, 2))
            chance.choice(running).send_signal(chance.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP]))
        for process in running:
            process.send_signal(signal.SIGCONT)
        for process in running:
            process.wait(120)
        assert batch.run(tmp_path / "one", "--retry-failed") == 0
        batch.run(tmp_path / "two")
        code, words = run(tmp_path / "archive", "--out", tmp_path / "alone", "-c", config)
        assert code == 0, words
    one, two, alone = (results(tmp_path / name) for name in ("one", "two", "alone"))
    assert one.keys() | two.keys() == alone.keys()
    assert [name for name, content in [*one.items(), *two.items()] if alone[name] != content] == []
    assert [*tmp_path.glob("*/.lookout-batch/*.part")] == []
