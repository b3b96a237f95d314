"""Tracking in the configuration: what it refuses, and what a change of it means for a running daemon."""

from __future__ import annotations

import pytest

from daemon.analytics.stages import AnalyticsStages
from daemon.config.load import parse
from daemon.config.root import Config
from daemon.control.plan import options_of
from daemon.control.reload import difference, least_confidence
from daemon.errors import ConfigError

_TEXT = "model: {path: x}\nsources:\n  - {id: a, type: synthetic%s}\n  - {id: b, type: synthetic}\n%s"


def _config(own: str = "", tracking: str = "") -> Config:
    return parse(_TEXT % (own and f", tracking: {own}", tracking and f"tracking: {tracking}\n"))


@pytest.mark.parametrize(
    ("own", "tracking", "message"),
    [
        ("", "{enable: true}", "tracking: unknown key `enable`; did you mean `enabled`?"),
        ("", "{floor: 2}", "tracking.floor: must be a number between 0 and 1, not 2"),
        ("", "{timeout_s: 0}", "tracking.timeout_s: must be a number between 0.001 and 3600, not 0"),
        ("", "{confirm_hits: 0}", "tracking.confirm_hits: must be a whole number between 1 and 100, not 0"),
        ("", "{groups: [[car, bus], [bus]]}", "tracking.groups[1]: 'bus' is named twice; a label has one group"),
        ("{groups: [[car]]}", "", "sources[0].tracking: unknown key `groups`"),
        ("5", "", "sources[0].tracking: must be true or false or a mapping: keys with a colon, not 5"),
    ],
)
def test_refused_in_one_line(own: str, tracking: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _config(own, tracking)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_label_of_a_group_is_refused() -> None:
    config = _config("", "{groups: [[car, lorry]]}")
    with pytest.raises(ConfigError, match="the model has no label 'lorry'; it has person, car"):
        AnalyticsStages.check(config, {"": ("person", "car")})


@pytest.mark.parametrize(
    ("own", "tracking", "floor"),
    [
        ("", "", 0.25),
        ("", "{floor: 0.05}", 0.25),
        ("", "{enabled: true}", 0.1),
        ("true", "{floor: 0.05}", 0.05),
        ("{floor: 0.02}", "{floor: 0.05}", 0.02),
        ("{floor: 0.02, enabled: false}", "{floor: 0.05}", 0.25),
        ("false", "{enabled: true, floor: 0.2}", 0.2),
        ("", "{enabled: true, floor: 0.9}", 0.25),
    ],
)
def test_the_detector_goes_down_to_the_lowest_floor(own: str, tracking: str, floor: float) -> None:
    config = _config(own, tracking)
    assert least_confidence(config) == floor
    assert options_of(config).wanted.confidence == floor


@pytest.mark.parametrize(
    ("before", "after", "changed", "model"),
    [
        (("true", ""), ("{timeout_s: 3}", ""), ["a"], False),
        (("true", ""), ("", ""), ["a"], False),
        (("true", "{timeout_s: 1}"), ("true", "{timeout_s: 2}"), ["a"], False),
        (("", "{enabled: true}"), ("", "{enabled: true, groups: [[car, bus]]}"), ["a", "b"], False),
        (("true", ""), ("", "{enabled: true}"), ["a", "b"], False),
        (("", ""), ("true", ""), ["a"], True),  # the detector must give weaker boxes
        (("", "{timeout_s: 1}"), ("", "{timeout_s: 2}"), [], False),
    ],
)
def test_a_change_reconnects_no_source(
    before: tuple[str, str], after: tuple[str, str], changed: list[str], model: bool
) -> None:
    change = difference(_config(*before), _config(*after))
    assert (change.added, change.removed, change.changed) == ([], [], [])
    assert [source.id for source in change.refiltered] == changed
    assert bool(change.models) is model
