"""What a keeper says of its lease, turn by turn; its clock is the test's."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from daemon.fleet.keeper import Keeper
from daemon.fleet.lease_page import SIZE, LeasePage
from daemon.fleet.port import CoordinatorAwayError, CoordinatorError, LeaseLostError

TTL_S = 6.0
SECOND = 1_000_000_000


class ScriptedRenewal:
    """A renewal whose coordinator does what a test says.

    Attributes:
        error: raised by the next tries; None: they succeed.
        held: tries wait for it.
    """

    def __init__(self) -> None:
        self.error: CoordinatorError | None = None
        self.tries = 0
        self.held = threading.Event()
        self.held.set()

    def renew(self) -> float:
        self.tries += 1
        assert self.held.wait(60.0)
        if self.error is not None:
            raise self.error
        return TTL_S

    def revoke(self) -> None:
        pass

    def close(self) -> None:
        pass


class Stage:
    """A keeper, its page, and the time."""

    def __init__(self, fd: int) -> None:
        self.now = 1000 * SECOND
        self.page, self.renewal = LeasePage(fd), ScriptedRenewal()
        self.page.set_beat(self.now)
        self.keeper = Keeper(self.page, self.renewal, TTL_S, lambda: self.now)

    def pass_time(self, seconds: float, *, beats: bool = True) -> None:
        """In turns, as the keeper's process has them."""
        for _ in range(round(seconds / 0.2)):
            self.now += SECOND // 5
            if beats:
                self.page.set_beat(self.now)
            self.keeper.check()

    @property
    def vouches(self) -> bool:
        """Whether the keeper vouches for the state just now."""
        return self.now - self.page.looked < SECOND


@pytest.fixture
def stage() -> Iterator[Stage]:
    fd = os.memfd_create("lease")
    os.ftruncate(fd, SIZE)
    yield Stage(fd)
    os.close(fd)


def test_nothing_is_sure_before_the_first_answer(stage: Stage) -> None:
    stage.pass_time(1.0)
    assert stage.page.valid_until == 0
    assert not stage.vouches


def test_a_renewal_counts_from_when_it_was_sent(stage: Stage) -> None:
    stage.pass_time(0.2)
    sent = stage.now
    assert stage.keeper.renew() == pytest.approx(TTL_S / 3)
    assert sent + 5 * SECOND < stage.page.valid_until < sent + TTL_S * SECOND
    assert stage.page.state == "renewed"
    stage.pass_time(0.2)
    assert stage.vouches


def test_the_page_says_how_late_renewals_were(stage: Stage) -> None:
    for seconds in (2.0, 4.0, 2.0):
        stage.keeper.renew()
        stage.pass_time(seconds)
    stage.keeper.renew()
    assert stage.page.renewals == 4
    assert stage.page.least_left == pytest.approx(1.75 * SECOND)


def test_a_daemon_that_does_not_beat_is_not_renewed(stage: Stage) -> None:
    stage.keeper.renew()
    stage.pass_time(3.2, beats=False)
    stage.keeper.renew()
    assert stage.renewal.tries == 1
    stage.pass_time(0.2)
    stage.keeper.renew()
    assert stage.renewal.tries == 2


def test_a_coordinator_that_is_away_is_vouched_for(stage: Stage) -> None:
    stage.keeper.renew()
    before = stage.page.valid_until
    stage.renewal.error = CoordinatorAwayError("etcd does not answer")
    stage.pass_time(2.0)
    assert stage.keeper.renew() < TTL_S / 3
    stage.pass_time(60.0)
    assert (stage.page.state, stage.page.reason) == ("away", "etcd does not answer")
    assert stage.page.valid_until == before
    assert stage.vouches
    stage.renewal.error = None
    stage.keeper.renew()
    assert stage.page.state == "renewed"
    assert stage.page.valid_until > before


def test_a_coordinator_that_refuses_is_not_away(stage: Stage) -> None:
    """It answers, and so it answers others: they may have the sources."""
    stage.renewal.error = CoordinatorError("permission denied")
    stage.keeper.renew()
    assert (stage.page.state, stage.page.reason) == ("refused", "permission denied")


def test_a_lost_lease_is_lost_for_good(stage: Stage) -> None:
    stage.renewal.error = LeaseLostError("the lease has ended")
    stage.keeper.renew()
    assert stage.keeper.is_lost
    assert stage.page.state == "lost"
    stage.pass_time(60.0)
    assert stage.page.state == "lost"


def test_after_a_pause_only_a_new_answer_counts(stage: Stage) -> None:
    """While a keeper was paused, the coordinator may have come back and given the sources to others."""
    stage.renewal.error = CoordinatorAwayError("etcd does not answer")
    stage.pass_time(0.2)
    stage.keeper.renew()
    stage.pass_time(0.2)
    assert stage.vouches
    stage.now += 60 * SECOND
    stage.page.set_beat(stage.now)
    stage.pass_time(0.2)
    assert not stage.vouches
    stage.keeper.renew()
    stage.pass_time(0.2)
    assert stage.vouches


def test_a_keeper_does_not_vouch_while_the_daemon_is_paused(stage: Stage) -> None:
    """It does not ask then, and so it does not know."""
    stage.renewal.error = CoordinatorAwayError("etcd does not answer")
    stage.pass_time(0.2)
    stage.keeper.renew()
    stage.pass_time(60.0, beats=False)
    stage.page.set_beat(stage.now)
    assert not stage.vouches
    stage.pass_time(0.2)
    assert not stage.vouches
    stage.keeper.renew()
    stage.pass_time(0.2)
    assert stage.vouches


def test_a_try_without_an_end_is_no_answer(stage: Stage) -> None:
    """Name resolution has no time limit."""
    stage.pass_time(0.2)
    stage.renewal.held.clear()
    trying = threading.Thread(target=stage.keeper.renew)
    trying.start()
    try:
        while not stage.renewal.tries:
            stage.renewal.held.wait(0.01)
        stage.pass_time(2.8)
        assert not stage.vouches
        stage.pass_time(0.4)
        assert stage.page.state == "away"
        assert stage.vouches
    finally:
        stage.renewal.held.set()
        trying.join()
    assert stage.page.state == "renewed"


def test_a_page_outlives_its_file() -> None:
    fd = os.memfd_create("lease")
    os.ftruncate(fd, SIZE)
    page = LeasePage(fd)
    os.close(fd)
    page.set_failed("away", "no route " * 1000)
    assert page.state == "away"
    assert page.reason.startswith("no route")
