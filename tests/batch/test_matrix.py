"""Pairs of what may happen to a worker of a batch, the second during the first. Another worker then ends the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from daemon.batch.clips import find_clips
from daemon.batch.folder import STATE, ResultFolder
from daemon.batch.settings import Recipe
from daemon.batch.store import StoreAwayError
from daemon.batch.worker import ALL_DONE, STOPPED, BatchWorker, Job, Waiting
from daemon.clock import Bell
from daemon.config.model import ModelConfig
from daemon.config.root import Config
from daemon.system.stop_token import StopToken
from tests.batch.fake_player import FakePlayer
from tests.batch.memory_store import MemoryBatch, MemoryClipStore
from tests.batch.test_worker import Noted
from tests.support.clock import ManualClock

_CONFIG = Config(model=ModelConfig(path=Path("m.onnx")), sources=[])
_CLIPS = 5


class _KilledError(BaseException):
    """The process ends here.

    Args:
        parts: what it leaves behind, by path.
    """

    def __init__(self, parts: dict[Path, bytes]) -> None:
        super().__init__()
        self.parts = parts


_OVER = object()


class _Store(MemoryClipStore):
    """Attributes:
    is_dead: nothing of its process reaches it any more.
    """

    is_dead = False

    def _check(self) -> MemoryBatch:
        if self.is_dead:
            raise StoreAwayError("the process is gone")
        return super()._check()


class _Batch:
    """An archive, and a worker that happens to be at its critical moment when its clips play.

    Attributes:
        clock: of the worker; between its turns everything happens.
    """

    def __init__(self, folder: Path) -> None:
        self.archive, self.out = folder / "archive", folder / "out"
        self.archive.mkdir()
        for number in range(_CLIPS):
            (self.archive / f"{number}.mp4").write_bytes(b"x" * (number + 1))
        self.clock = ManualClock()
        self.shared = MemoryBatch(self.clock)
        self.stop, self.player = StopToken(), FakePlayer(plays_by_itself=False)
        self.store = _Store(self.shared)

    def worker(self, store: MemoryClipStore, player: FakePlayer, clock: ManualClock, stop: StopToken) -> BatchWorker:
        recipe = Recipe(_CONFIG, {"model": {"digest": "d"}}, at_once=3)
        job = Job(find_clips([str(self.archive)]), recipe, ResultFolder(self.out, exclusive=False))
        return BatchWorker(job, store, player, Noted(), Waiting(clock, Bell(), stop))

    def run(self, happen: Callable[[], Iterator[None]]) -> int | None:
        """The worker's exit code; None if it was killed.

        Args:
            happen: goes on with each of its turns, once its clips play.
        """
        begun: list[Iterator[None]] = []

        def turn() -> None:
            if not self.shared.is_away:
                self.store.renew()
            if self.player.playing and not begun:
                begun.append(happen())
            if begun and next(begun[0], _OVER) is _OVER:
                self.player.plays_by_itself = True

        self.clock.on_wait = turn
        try:
            return self.worker(self.store, self.player, self.clock, self.stop).run()
        except _KilledError as error:
            for path, data in error.parts.items():
                path.write_bytes(data)
            return None

    def finish(self) -> None:
        """By another worker."""
        store = MemoryClipStore(self.shared)
        self.shared.is_away = False
        self.clock.on_wait = store.renew
        assert self.worker(store, FakePlayer(), self.clock, StopToken()).run() == ALL_DONE


def _killed(batch: _Batch) -> Iterator[None]:
    batch.store.is_dead = True
    yield from ()
    raise _KilledError({path: path.read_bytes() for path in (batch.out / STATE).glob("*.part")})


def _paused(batch: _Batch) -> Iterator[None]:
    """For longer than its lease, while another one claims its clips and gives them back."""
    batch.clock.advance(60)
    other = MemoryClipStore(batch.shared)
    if not batch.shared.is_away:
        other.release([*other.claim(range(_CLIPS))])
    other.close()
    yield


def _stopped(batch: _Batch) -> Iterator[None]:
    batch.stop.set()
    yield


def _store_away(batch: _Batch) -> Iterator[None]:
    """For longer than its lease."""
    batch.shared.is_away = True
    for _ in range(100):
        yield
    batch.shared.is_away = False
    yield


def _clips_end(batch: _Batch) -> Iterator[None]:
    """Those that play: their results are published in the next turn."""
    for source in [*batch.player.playing]:
        batch.player.end(source)
    yield


def _clip_changes(batch: _Batch) -> Iterator[None]:
    name = next(iter(batch.player.playing.values()), "0.mp4")
    (batch.archive / name).write_bytes(b"y" * 9)
    yield


_VERBS: dict[str, Callable[[_Batch], Iterator[None]]] = {
    "killed": _killed,
    "paused": _paused,
    "stopped": _stopped,
    "store away": _store_away,
    "clips end": _clips_end,
    "clip changes": _clip_changes,
}


@pytest.mark.parametrize("second", _VERBS)
@pytest.mark.parametrize("first", _VERBS)
def test_each_clip_has_one_result(tmp_path: Path, first: str, second: str) -> None:
    batch = _Batch(tmp_path)

    def happen() -> Iterator[None]:
        begun = _VERBS[first](batch)
        next(begun)
        yield from _VERBS[second](batch)
        yield from begun

    code = batch.run(happen)
    expected = None if "killed" in (first, second) else STOPPED if "stopped" in (first, second) else ALL_DONE
    assert code == expected
    batch.clock.advance(60)  # what a dead one held is free
    batch.finish()
    assert sorted(path.name for path in batch.out.glob("*.jsonl")) == [
        f"{number}.mp4.jsonl" for number in range(_CLIPS)
    ]
    assert {outcome.state for outcome in batch.shared.outcomes.values()} == {"done"}
    assert batch.shared.outcomes.keys() == {*range(_CLIPS)}
    assert batch.shared.claims == {}
    assert [*(batch.out / STATE).glob("*.part")] == []
