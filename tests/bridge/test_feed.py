"""What a feed makes of a daemon's clips and counts."""

from __future__ import annotations

from pathlib import Path

import msgspec

from daemon.bridge.clip_intake import ClipIntake
from daemon.bridge.feed import Feed
from daemon.bridge.notices import NoticeBook
from daemon.bridge.spool import Spool
from daemon.bridge.states import StateBoard
from daemon.config.bridge import StatusConfig
from daemon.peers.addresses import DaemonAddress
from daemon.redact import Secret
from lookout.epochs import Epochs
from lookout.messages import Clip, ClipState, Counts, Owner
from tests.bridge.publisher import TOKEN, EventSource
from tests.bridge.told import AT, metrics
from tests.support.clock import ManualClock


def _clip(index: int, id: str, state: ClipState) -> Clip:
    return Clip(instance="run", source="door", index=index, id=id, store="main", events=[id], begin=AT, end=AT + 1,
                covered=1, state=state, path="/api/v1/x")  # fmt: skip


def test_a_beginning_that_was_lost_is_no_clip_that_was_lost() -> None:
    intake = ClipIntake("hall", ManualClock())
    assert [*intake.take(_clip(0, "run-1", "recording"))] == []
    loss, ready = intake.take(_clip(3, "run-2", "ready"))  # its own beginning is among what did not come
    found = msgspec.json.decode(loss.body)
    assert (loss.kind, found["count"], found["cause"]) == ("loss", None, "wire")
    assert (ready.kind, ready.id) == ("clip", "main-run-2-ready")
    assert [entry.kind for entry in intake.take(_clip(4, "run-3", "ready"))] == ["clip"]


def _counts(source: str, epoch: int | None = None) -> Counts:
    owner = None if epoch is None else Owner(fleet="f", node="n", epoch=epoch)
    return Counts(instance="1", source=source, index=0, at=AT, since=AT, totals=[], occupancy=[], owner=owner)


def test_counts_that_are_asked_for_bring_no_removed_source_back(tmp_path: Path) -> None:
    clock, states, epochs = ManualClock(), StateBoard(["here"]), Epochs()
    spool = Spool(tmp_path / "spool.sqlite", 16, clock)
    epochs.admits("moved", Owner(fleet="f", node="m", epoch=2))
    with EventSource() as source:
        address = DaemonAddress("here", source.endpoint, source.http, Secret(TOKEN))
        feed = Feed(address, spool, states, NoticeBook(StatusConfig(), ["here"], clock), epochs, clock)

        def counted() -> list[str]:
            feed.tick()
            return [row.source for row in states.read().sources.values() if row.counts is not None]

        source.counts = [_counts("door"), _counts("removed"), _counts("moved", 1)]
        feed._on_state("up", None)
        assert counted() == []  # which sources the daemon has is not known yet
        states.on_message("here", metrics(["door", "moved"], 25.0))
        known, source.counts = source.counts, None
        assert counted() == []  # the API refuses
        source.counts = known
        assert counted() == []  # it is left alone for a while
        clock.advance(10)
        assert counted() == ["door"]
        assert {row.source for row in states.read().sources.values()} == {"door", "moved"}
        feed.close(1.0)
    spool.close(1.0)
