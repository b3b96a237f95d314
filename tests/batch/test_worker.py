"""A worker beside others, and what happens to it: claims that are lost, a store that is away, faults, a stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from daemon.batch.clips import find_clips
from daemon.batch.folder import STATE, FolderError, ResultFolder
from daemon.batch.progress import Playing
from daemon.batch.settings import Recipe
from daemon.batch.store import BatchView, ClipStore, ModelFacts, Outcome, StoreError
from daemon.batch.worker import ALL_DONE, SOME_FAILED, STOPPED, BatchWorker, Job, Waiting
from daemon.clock import Bell
from daemon.config.model import ModelConfig
from daemon.config.root import Config
from daemon.errors import LookoutError
from daemon.system.stop_token import StopToken
from tests.batch.fake_player import FakePlayer
from tests.batch.memory_store import MemoryBatch, MemoryClipStore
from tests.support.clock import ManualClock

CONFIG = Config(model=ModelConfig(path=Path("m.onnx")), sources=[])


class Noted:
    """Implements `BatchProgress`."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def show(self, view: BatchView, playing: Sequence[Playing]) -> None:
        assert len(playing) <= 4
        assert len(view.outcomes) <= 20

    def note(self, words: str) -> None:
        self.notes.append(words)

    def close(self) -> None:
        """Holds nothing."""


class Rig:
    """An archive, and a batch in memory. Reading a clip takes real time, so a worker turns until it is done."""

    def __init__(self, folder: Path, clock: ManualClock, clips: int = 6) -> None:
        self.archive, self.out, self.clock = folder / "archive", folder / "out", clock
        self.archive.mkdir()
        for number in range(clips):
            (self.archive / f"{number}.mp4").write_bytes(b"x" * (number + 1))
        self.batch = MemoryBatch(clock)
        self.stop, self.noted, self.player = StopToken(), Noted(), FakePlayer()

    def worker(
        self,
        player: FakePlayer | None = None,
        store: ClipStore | None = None,
        out: Path | None = None,
        *,
        settings: dict[str, object] | None = None,
        retry_failed: bool = False,
    ) -> BatchWorker:
        recipe = Recipe(CONFIG, {"model": settings or {"digest": "d"}}, at_once=4)
        folder = ResultFolder(out or self.out, exclusive=False)
        job = Job(find_clips([str(self.archive)]), recipe, folder, retry_failed)
        store = store or MemoryClipStore(self.batch)
        return BatchWorker(job, store, player or self.player, self.noted, Waiting(self.clock, Bell(), self.stop))

    def renew(self) -> None:
        """As the thread of a lease does."""
        for worker in self.batch.workers:
            worker.renew()

    def on_turn(self, act: Callable[[], None]) -> None:
        self.clock.on_wait = act

    @property
    def results(self) -> list[str]:
        return sorted(path.name for path in self.out.glob("*.jsonl"))

    @property
    def parts(self) -> list[Path]:
        return [*(self.out / STATE).glob("*.part")]


@pytest.fixture
def rig(tmp_path: Path, clock: ManualClock) -> Rig:
    made = Rig(tmp_path, clock)
    made.on_turn(made.renew)
    return made


def _all(count: int = 6) -> list[str]:
    return [f"{number}.mp4.jsonl" for number in range(count)]


def test_every_clip_has_one_result(rig: Rig) -> None:
    assert rig.worker().run() == ALL_DONE
    assert rig.results == _all()
    assert rig.parts == []
    assert rig.player.largest <= 4
    assert (rig.player.is_closed, rig.batch.claims) == (True, {})
    assert sorted(rig.player.played) == [f"{number}.mp4" for number in range(6)]


def test_a_batch_that_is_done_opens_no_model(rig: Rig) -> None:
    rig.worker().run()
    again = FakePlayer()
    assert rig.worker(again).run() == ALL_DONE
    assert not again.is_open
    assert rig.noted.notes == ["6 of 6 results are there already"]


def test_results_that_are_there_are_skipped_by_a_store_that_knows_nothing(rig: Rig, clock: ManualClock) -> None:
    rig.worker().run()
    (rig.out / "3.mp4.jsonl").unlink()
    rig.batch = MemoryBatch(clock)
    again = FakePlayer()
    assert rig.worker(again).run() == ALL_DONE
    assert again.played == ["3.mp4"]


def test_a_result_that_was_removed_is_made_again(rig: Rig) -> None:
    rig.worker().run()
    (rig.out / "3.mp4.jsonl").unlink()
    again = FakePlayer()
    assert rig.worker(again).run() == ALL_DONE
    assert again.played == ["3.mp4"]


def test_results_in_another_folder_are_not_made_again(rig: Rig, tmp_path: Path) -> None:
    rig.worker().run()
    again = FakePlayer()
    assert rig.worker(again, out=tmp_path / "other").run() == ALL_DONE
    assert again.played == []


def test_results_of_other_settings_are_one_line(rig: Rig) -> None:
    rig.worker().run()
    with pytest.raises(LookoutError, match=r"0\.mp4\.jsonl has other settings \(model\.iou\): name another folder"):
        rig.worker(settings={"digest": "d", "iou": 0.5}).run()
    assert rig.results == _all()


def test_a_result_of_another_recording_is_one_line(rig: Rig) -> None:
    rig.worker().run()
    (rig.archive / "0.mp4").write_bytes(b"longer than before")
    with pytest.raises(LookoutError, match=r"is the result of another recording \(1 bytes\)"):
        rig.worker().run()


def test_two_workers_share_the_clips(rig: Rig) -> None:
    """Neither takes more than its share of what is left, so the other has something to do."""
    store = MemoryClipStore(rig.batch)
    assert rig.worker().run() == ALL_DONE
    assert rig.player.largest <= 3
    assert rig.batch.outcomes.keys() == set(range(6))
    store.close()


def test_clips_of_a_worker_that_died_are_taken_over(rig: Rig) -> None:
    dead = MemoryClipStore(rig.batch)
    assert dead.claim([0, 1]) == {0: 1, 1: 1}
    alive = [worker for worker in rig.batch.workers if worker is not dead]
    mine = rig.worker()
    alive += [rig.batch.workers[-1]]

    def act() -> None:
        for worker in alive:
            worker.renew()

    rig.on_turn(act)
    assert mine.run() == ALL_DONE
    assert rig.results == _all()
    assert rig.batch.attempts[0] == 2


def test_what_a_worker_lost_is_thrown_away_and_claimed_anew(rig: Rig) -> None:
    """Its lease ends while it plays: nothing of it is published before there is another claim."""
    rig.player.plays_by_itself = False
    turns = 0

    def act() -> None:
        nonlocal turns
        if len(rig.player.playing) == 4 and turns == 0:
            turns = 1
            rig.clock.advance(60)
            for source in [*rig.player.playing]:
                rig.player.end(source)  # too late
            rig.player.plays_by_itself = True
            assert rig.results == []
        else:
            rig.renew()

    rig.on_turn(act)
    assert rig.worker().run() == ALL_DONE
    assert turns == 1
    assert rig.results == _all()
    assert set(rig.batch.attempts.values()) == {1}  # the coordinator's silence is no fault of theirs
    assert rig.parts == []


def test_a_result_whose_record_was_late_is_not_made_twice(rig: Rig) -> None:
    """The store is away between the result and its record, for longer than the lease."""

    def away() -> None:
        rig.batch.is_away = True

    rig.player.on_end = away
    waited = 0

    def act() -> None:
        nonlocal waited
        if not rig.batch.is_away:
            rig.renew()
        elif (waited := waited + 1) > 200:
            rig.batch.is_away = False
            rig.player.on_end = lambda: None

    rig.on_turn(act)
    assert rig.worker().run() == ALL_DONE
    assert sorted(rig.player.played) == sorted(set(rig.player.played))
    assert rig.results == _all()
    assert any("does not answer" in note for note in rig.noted.notes)
    assert "the coordinator is back" in rig.noted.notes


def test_a_result_that_another_has_in_its_own_folder_is_withdrawn(rig: Rig) -> None:
    """Each worker has a folder, and one loses its claim after it has published: one result of each clip is left."""
    other = MemoryClipStore(rig.batch)
    waited = 0

    def away() -> None:
        rig.batch.is_away = True

    rig.player.on_end = away

    def act() -> None:
        nonlocal waited
        other.renew()
        if not rig.batch.is_away:
            rig.batch.workers[-1].renew()
        elif (waited := waited + 1) == 200:
            rig.batch.is_away, rig.player.on_end = False, lambda: None
            for clip in other.claim(range(6)):
                other.finish(clip, Outcome(state="done", folder="another"))

    rig.on_turn(act)
    assert rig.worker().run() == ALL_DONE
    assert waited == 200
    assert rig.results == []


def test_a_damaged_clip_fails_after_three_attempts(rig: Rig) -> None:
    rig.player.faults["2.mp4"] = f"cannot open {rig.archive}/2.mp4: no video\nin it"
    assert rig.worker().run() == SOME_FAILED
    assert rig.player.played.count("2.mp4") == 3
    assert rig.batch.outcomes[2].reason == "cannot open 2.mp4: no video\ufffdin it"
    assert rig.results == [name for name in _all() if name != "2.mp4.jsonl"]
    assert rig.parts == []
    again = FakePlayer()
    assert rig.worker(again).run() == SOME_FAILED
    assert again.played == []
    assert rig.worker(again, retry_failed=True).run() == ALL_DONE
    assert again.played == ["2.mp4"]


def test_the_last_attempt_of_a_clip_is_made_alone(rig: Rig) -> None:
    """A clip that kills its process does not take the same others with it three times."""
    rig.player.faults = {"1.mp4": "crash", "2.mp4": "crash"}
    together: dict[str, set[int]] = {"1.mp4": set(), "2.mp4": set()}

    def act() -> None:
        for name, others in together.items():
            if name in rig.player.playing.values():
                others.add(len(rig.player.playing))

    rig.player.on_play = act
    assert rig.worker().run() == SOME_FAILED
    assert all(1 in others for others in together.values())


def test_a_clip_that_kills_every_worker_is_given_up(rig: Rig) -> None:
    for _ in range(3):
        dying = MemoryClipStore(rig.batch)
        dying.claim([5])
        dying.close()
    assert rig.worker().run() == SOME_FAILED
    assert rig.batch.outcomes[5].reason == "3 attempts ended without a result, and without a reason"
    assert "5.mp4" not in rig.player.played


def test_a_clip_that_changes_meanwhile_is_read_again(rig: Rig) -> None:
    def write() -> None:
        if "4.mp4" in rig.player.played:
            (rig.archive / "4.mp4").write_bytes(b"y" * 9)
            rig.player.on_play = lambda: None

    rig.player.on_play = write
    assert rig.worker().run() == ALL_DONE
    assert rig.player.played.count("4.mp4") == 2


def test_a_clip_that_is_gone_fails(rig: Rig) -> None:
    worker = rig.worker()
    (rig.archive / "4.mp4").unlink()
    assert worker.run() == SOME_FAILED
    assert rig.batch.outcomes[4].reason == "it cannot be read: No such file or directory"


def test_a_stop_gives_all_clips_back(rig: Rig) -> None:
    rig.player.plays_by_itself = False

    def act() -> None:
        rig.renew()
        if len(rig.player.playing) == 4:
            rig.stop.set()

    rig.on_turn(act)
    assert rig.worker().run() == STOPPED
    assert (rig.batch.claims, set(rig.batch.attempts.values())) == ({}, {0})
    assert (rig.results, rig.parts, rig.player.is_closed) == ([], [], True)


def test_a_stop_while_the_store_is_away(rig: Rig) -> None:
    rig.player.plays_by_itself = False

    def act() -> None:
        rig.renew()
        if len(rig.player.playing) == 4:
            rig.batch.is_away = True
            rig.stop.set()

    rig.on_turn(act)
    assert rig.worker().run() == STOPPED
    assert (rig.results, rig.parts, rig.player.is_closed) == ([], [], True)


def test_a_detector_that_fails_ends_the_worker(rig: Rig) -> None:
    rig.player.plays_by_itself = False

    def act() -> None:
        rig.renew()
        if rig.player.playing:
            rig.player.failure = 3

    rig.on_turn(act)
    assert rig.worker().run() == 3
    assert (rig.batch.claims, rig.parts) == ({}, [])


def test_a_full_disk_ends_the_worker_and_keeps_what_is_whole(rig: Rig) -> None:
    rig.player.plays_by_itself = False

    def act() -> None:
        rig.renew()
        for source, name in [*rig.player.playing.items()]:
            rig.player.faults[name] = "no space is left"
            rig.player.end(source, is_fatal=True)

    rig.on_turn(act)
    with pytest.raises(FolderError, match="no space is left"):
        rig.worker().run()
    assert (rig.results, rig.parts, rig.batch.claims, rig.player.is_closed) == ([], [], {}, True)


def test_a_worker_with_another_backend_is_refused(rig: Rig) -> None:
    other = MemoryClipStore(rig.batch)
    rig.worker().run()
    with pytest.raises(StoreError, match="fake"):
        other.agree({"": ModelFacts(digest="0" * 12, precision="fp16", backend="trt")})
