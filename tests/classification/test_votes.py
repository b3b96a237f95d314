"""Votes of a classifier on a track: when it is looked at, and what is said of it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from daemon.classification.votes import AttributeVotes, rules_of
from daemon.config.model import ClassifierConfig

AREA = 10_000.0


def _ballot(**settings: Any) -> AttributeVotes:
    return AttributeVotes(rules_of(ClassifierConfig(name="color", path=Path("color.onnx"), wanted=["car"], **settings)))


def _look(
    ballot: AttributeVotes, value: str, confidence: float = 0.9, seq: int = 0, area: float = AREA
) -> tuple[str | None, int, bool]:
    ballot.request(area, 0)
    found = ballot.add(value, confidence, seq)
    return found.value, found.votes, found.settled


def test_a_value_settles_when_enough_looks_agree() -> None:
    """Three of five: 0.6 of the attempts."""
    ballot = _ballot()
    assert _look(ballot, "red") == ("red", 1, False)
    assert _look(ballot, "blue") == ("red", 1, False)  # of equal ones the present value
    assert _look(ballot, "red") == ("red", 2, False)
    assert _look(ballot, "red") == ("red", 3, True)


def test_an_unsure_look_has_no_vote() -> None:
    ballot = _ballot()
    assert _look(ballot, "red", 0.79) == (None, 0, False)
    assert ballot.add("red", 0.5, 7).confidence is None
    assert _look(ballot, "red", 0.8) == ("red", 1, False)


def test_an_attribute_says_which_frame_it_is_of() -> None:
    ballot = _ballot()
    ballot.request(AREA, 0)
    assert ballot.add("red", 0.123456789, 42).at_seq == 42


def test_a_settled_value_does_not_blink() -> None:
    """Single looks that see something else change nothing; enough of them do."""
    ballot = _ballot()
    for _ in range(3):
        _look(ballot, "red")
    assert _look(ballot, "blue") == ("red", 3, True)
    assert _look(ballot, "blue") == ("red", 3, True)
    assert _look(ballot, "blue") == ("blue", 3, True)


def test_a_settled_value_stays_while_nothing_is_sure() -> None:
    ballot = _ballot()
    for _ in range(3):
        _look(ballot, "red", 0.95)
    for _ in range(9):
        value, votes, settled = _look(ballot, "blue", 0.4)
    assert (value, settled) == ("red", True)
    assert votes > 0


@pytest.mark.parametrize("seed", range(20))
def test_what_is_said_is_never_less_than_the_votes(seed: int) -> None:
    """Whatever the looks: a settled value had enough votes when it came, and never becomes unknown again."""
    chance = random.Random(seed)
    ballot = _ballot(attempts=chance.randint(1, 7), agree=chance.choice([0.2, 0.5, 0.6, 1.0]))
    settled = None
    for seq in range(60):
        ballot.request(AREA, seq)
        found = ballot.add(chance.choice("abc"), chance.random(), seq)
        if settled is not None:
            assert found.settled
            assert found.value is not None
        if found.settled and found.value != settled:
            settled = found.value
        assert (found.value is None) == (found.confidence is None)


def test_a_new_track_is_looked_at_until_it_settles_and_then_no_more() -> None:
    ballot = _ballot()
    looks = 0
    while ballot.is_due(AREA, 0):
        _look(ballot, "red")
        looks += 1
    assert looks == 3


def test_looks_end_without_a_result_too() -> None:
    """Five attempts, then no more: a track that cannot be told costs no more than that."""
    ballot = _ballot()
    looks = 0
    while ballot.is_due(AREA, 0):
        _look(ballot, "red", 0.3)
        looks += 1
    assert looks == 5


def test_a_box_that_grows_is_looked_at_again() -> None:
    """By a fifth since the last look, whether it is settled or not."""
    ballot = _ballot()
    for _ in range(3):
        _look(ballot, "red")
    assert not ballot.is_due(AREA * 1.19, 0)
    assert ballot.is_due(AREA * 1.2, 0)
    _look(ballot, "red", area=AREA * 1.2)
    assert not ballot.is_due(AREA * 1.3, 0)
    assert not _settled(area_growth=None).is_due(AREA * 100, 0)


def test_time_makes_a_look_due_if_asked_for() -> None:
    ballot = _settled(every_s=2.0)
    assert not ballot.is_due(AREA, 1_999_999_999)
    assert ballot.is_due(AREA, 2_000_000_000)
    assert not _settled().is_due(AREA, 1 << 60)


def _settled(**settings: Any) -> AttributeVotes:
    ballot = _ballot(**settings)
    for _ in range(3):
        _look(ballot, "red")
    assert ballot.is_settled
    return ballot


def test_one_look_at_a_time_and_a_dropped_one_is_due_again() -> None:
    ballot = _ballot()
    ballot.request(AREA, 0)
    assert not ballot.is_due(AREA, 0)
    ballot.cancel()
    assert ballot.is_due(AREA, 0)
    settled = _settled()
    settled.request(AREA * 2, 0)
    settled.cancel()
    assert settled.is_due(AREA * 2, 0)
    assert not settled.is_due(AREA, 0)
