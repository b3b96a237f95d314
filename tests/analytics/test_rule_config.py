"""The configuration of rules: each mistake has one clear line."""

from __future__ import annotations

import pytest

from daemon.config.load import parse
from daemon.control.reload import difference
from daemon.errors import ConfigError
from daemon.rule_config import check_labels
from tests.analytics.feed import LABELS, rules_of

SQUARE = "[[0.1, 0.1], [0.5, 0.1], [0.5, 0.5], [0.1, 0.5]]"
LINES = "[[[0.1, 0.1], [0.5, 0.1]], [[0.1, 0.5], [0.5, 0.5]]]"


def _text(*rules: str) -> str:
    rows = "".join(f"      - {{{rule}}}\n" for rule in rules)
    head = (
        "model: {path: demo.onnx}\ntracking: {enabled: true}\nsources:\n  - id: cam\n    type: synthetic\n    rules:\n"
    )
    return head + rows


def _zone(more: str = "", points: str = SQUARE) -> str:
    return f"type: zone, name: door, points: {points}{more and ', '}{more}"


def _line(more: str = "", points: str = "[[0.1, 0.1], [0.9, 0.9]]") -> str:
    return f"type: line, name: street, points: {points}{more and ', '}{more}"


def test_rules_without_tracks_are_refused() -> None:
    text = _text("type: object, name: all").replace("enabled: true", "enabled: false")
    with pytest.raises(ConfigError, match=r"sources\[0\].rules: rules need tracks; set tracking: true"):
        parse(text)


def test_every_key_can_be_set() -> None:
    more = (
        "labels: [person], min_area: 0.01, max_area: 0.5, active: 'mon-fri 22:00-06:00', timezone: Europe/Berlin, "
        "anchor: center, enter_s: 1, exit_s: 2, dwell_s: [5, 60], crowd: {over: 5, under: 3, for_s: 2}"
    )
    gate = f"type: gate, name: way, lines: {LINES}, band: 0.2, confirm_s: 0.1, cooldown_s: 3"
    pixels = _line("frame_size: [1920, 1080]", "[[0, 0], [1920, 1080]]")
    (source,) = parse(_text(_zone(more), gate, pixels, "type: object, name: all")).sources
    assert [rule.name for rule in source.rules] == ["door", "way", "street", "all"]


@pytest.mark.parametrize(
    ("rule", "where", "what"),
    [
        (_zone(points="[[0.1, 0.1], [0.5, 0.5], [0.5, 0.1], [0.1, 0.5]]"), "points", "sides 1 and 3 meet"),
        (_zone(points="[[0.1, 0.1], [0.5, 0.1], [0.3, 0.1], [0.3, 0.5]]"), "points", "crosses itself"),
        (_zone(points="[[0.1, 0.1], [0.5, 0.1], [0.5, 0.5], [0.3, 0.1]]"), "points", "crosses itself"),
        (_zone(points="[[0.1, 0.1], [0.5, 0.1]]"), "points", "three different points or more, not 2"),
        (_zone(points="[[0.1, 0.1], [0.5, 0.1], [0.1, 0.1]]"), "points", "three different points or more, not 2"),
        (_zone(points="[[0.1, 0.1], [0.5, 0.1], [0.1, 0.1], [0.4, 0.4]]"), "points[2]", "is a point of the polygon"),
        (_zone(points="[[0.1, 0.1], [0.2, 0.2], [0.3, 0.3]]"), "points", "crosses itself"),
        (_zone(points="[[0.1, 0.1], [0.2, 0.1], [0.3, 0.10000001]]"), "points", "has no area"),
        (_zone(points="[[0.1, 0.1], [640, 0.1], [640, 480]]"), "points", "mixes shares of the picture"),
        (_zone(points="[[0, 0], [640, 0], [640, 480]]"), "points", "frame_size: [width, height]"),
        (_zone("frame_size: [640, 480]"), "frame_size", "is for pixels"),
        (_zone("frame_size: [640, 480]", "[[0, 0], [641, 0], [640, 480]]"), "points[1]", "outside of frame_size"),
        (_zone(points="[[0.1, -0.1], [0.5, 0.1], [0.1, 0.4]]"), "points[0][1]", "a number between 0 and 16384"),
        (_zone(points="[[0.1], [0.5, 0.1], [0.1, 0.4]]"), "points[0]", "a list of 2"),
        (_zone(points=str([[0.1, 0.1]] * 257)), "points", "may have 256 items, not 257"),
        (_zone(points="5"), "points", "a list: begin each of its items with -"),
        ("type: zone, name: door", "points", "set `points` for one polygon"),
        (_zone(f"polygons: [{SQUARE}]"), "points", "or `polygons` for several"),
        ("type: zone, name: door, polygons: []", "polygons", "is empty"),
        (f"type: zone, name: door, polygons: [{SQUARE}, [[1, 2]]]", "polygons[0]", "but polygons[1] is in pixels"),
        (_zone("dwell_s: [5, 5]"), "dwell_s", "must rise"),
        (_zone("dwell_s: [0, 5]"), "dwell_s", "begin above 0"),
        (_zone("crowd: {over: 3, under: 5}"), "crowd.under", "above crowd.over"),
        (_zone("crowd: {}"), "crowd", "missing key `over`"),
        (_zone("enter: 3"), "rules[0]", "did you mean `enter_s`?"),
        (_zone("anchor: feet"), "anchor", "one of bottom, center, top, not 'feet'"),
        (_zone("labels: []"), "labels", "never applies"),
        (_zone("min_area: 0.5, max_area: 0.1"), "max_area", "below min_area"),
        (_line(points="[[0.1, 0.1], [0.1, 0.1]]"), "points", "the line has no length"),
        (_line(points="[[0.1, 0.1]]"), "points", "two points or more, not 1"),
        (_line(points="[[0.1, 0.1], [640, 480]]"), "points", "mixes shares of the picture"),
        (f"type: gate, name: g, lines: [{SQUARE}]", "lines", "a list of 2"),
        ("type: gate, name: g, lines: [[[0, 0], [0, 0]], [[0, 0], [0, 1]]]", "lines[0]", "no length"),
        (_line("active: ''"), "active", "needs a `timezone`"),
        (_line("timezone: UTC"), "timezone", "is for `active`"),
        (_line("active: '', timezone: UTC"), "active", "is empty"),
        (_line("active: 'mon 10:00-10:00', timezone: UTC"), "active", "never is"),
        (_line("active: 'fri-tuesday', timezone: UTC"), "active", "'tuesday' is no day"),
        (_line("active: '25:00-26:00', timezone: UTC"), "active", "no time of a day"),
        (_line("active: 'mon 9-17', timezone: UTC"), "active", "is not days and times"),
        (_line("active: 'sat', timezone: Mars/Olympus"), "timezone", "is no time zone"),
        (_line("active: 'sat', timezone: ../../etc/passwd"), "timezone", "is no time zone"),
        ("type: line, name: a/b, points: [[0, 0], [1, 1]]", "name", "letters"),
        ("type: wall, name: a", "type", "one of zone, line, gate, object, not 'wall'"),
        ("type: file, name: a", "type", "one of zone, line, gate, object, not 'file'"),
        ("name: a", "rules[0]", "missing key `type`: it is one of zone, line, gate, object"),
        ("type: object", "rules[0]", "missing key `name`"),
        ("type: object, name: a, anchor: top", "rules[0]", "unknown key `anchor`"),
    ],
)
def test_refused_in_one_line_with_the_place(rule: str, where: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(_text(rule))
    message = str(caught.value)
    assert message.startswith("sources[0].rules[0]")
    assert where in message.partition(":")[0]
    assert what in message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["street", "STREET"])
def test_two_rules_of_one_name_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"sources\[0\].rules\[1\].name: '.*' is used twice"):
        parse(_text(_line(), f"type: object, name: {name}"))


def test_too_many_rules_are_refused() -> None:
    with pytest.raises(ConfigError, match="65 are too many"):
        parse(_text(*(f"type: object, name: rule-{number}" for number in range(65))))


def test_a_label_that_the_model_does_not_have_is_refused() -> None:
    rules = rules_of({"type": "object", "name": "birds", "labels": ["bird", "person"]})
    with pytest.raises(ConfigError, match=r"^sources, id cam, rule birds: the model has no label 'bird'; it has per"):
        check_labels(rules, LABELS, "cam")


def test_a_polygon_may_repeat_its_first_point_at_its_end() -> None:
    assert parse(_text(_zone(points=SQUARE[:-1] + ", [0.1, 0.1]]"))).sources[0].rules


def test_another_rule_reconnects_no_source() -> None:
    change = difference(parse(_text(_line())), parse(_text(_line(), _zone())))
    assert [source.id for source in change.refiltered] == ["cam"]
    assert change.changed == []
