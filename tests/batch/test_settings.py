"""What a batch's results depend on, and what its configuration refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from daemon.batch.clips import Clip
from daemon.batch.settings import Recipe, recipe_of
from daemon.config.load import parse
from daemon.config.root import Config
from daemon.control.plan import planned_processes, separates_rules
from daemon.errors import ConfigError
from tests.support.daemon import DEMO_MODEL

_ZONE = {"type": "zone", "name": "all", "polygons": [[[0, 0], [1, 0], [1, 1]]]}

_BY_DAY = {**_ZONE, "active": "mon-fri 08:00-17:00", "timezone": "UTC"}


def _config(**keys: Any) -> Config:
    model = {"path": str(DEMO_MODEL), **keys.pop("model", {})}
    return parse(yaml.safe_dump({"model": model, "sources": [], **keys}), may_be_empty=True)


def _recipe(**keys: Any) -> Recipe:
    return recipe_of(_config(**keys), "ipc:///tmp/x")


def test_settings_are_what_differs_from_the_defaults() -> None:
    found = _recipe(batch={"source": {"labels": ["person"], "tracking": True, "rules": [_ZONE]}}, model={"iou": 0.6})
    assert found.settings["model"].keys() == {"digest", "iou"}
    assert found.settings["source"] == {
        "labels": ["person"],
        "tracking": True,
        "rules": [{"type": "zone", "name": "all", "polygons": [[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]]}],
    }
    assert _recipe().settings.keys() == {"model"}


def test_events_come_before_their_frames_however_many_processes_capture() -> None:
    """Rules in a process of their own would give them some time later, so that two runs give other bytes."""
    recipe = _recipe(capture_processes=2, events={"own_process": True})
    clips = [recipe.source(f"clip-{number}", Path(f"{number}.mkv")) for number in range(4)]
    config = msgspec.structs.replace(recipe.config, sources=clips)
    assert (planned_processes(config), separates_rules(config)) == (2, False)


@pytest.mark.parametrize(
    "keys",
    [
        {"lanes": 4},
        {"batch": {"at_once": 3}},
        {"capture_processes": 0},
        {"model": {"backend": "cpu", "threads": 2, "max_batch": 4}},
        {"http": {"enabled": True, "port": 0}},
        {"sources": [{"id": "camera", "type": "camera"}]},
        {"board": {"depth": 3}},
    ],
    ids=str,
)
def test_results_do_not_depend_on_how_fast_they_are_made(keys: dict[str, Any]) -> None:
    assert _recipe(**keys).digest == _recipe().digest


@pytest.mark.parametrize(
    "keys",
    [
        {"model": {"confidence": 0.5}},
        {"tracking": {"enabled": True}},
        {"batch": {"source": {"decode": "cpu"}}},
        {"publisher": {"masks": "rle"}},
        {"model": {"labels": "coco"}},
        {"model": {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}},
        {"model": {"first_class": 1}},
    ],
    ids=str,
)
def test_results_depend_on(keys: dict[str, Any]) -> None:
    assert _recipe(**keys).digest != _recipe().digest


_NAMED = {"path": str(DEMO_MODEL)}
_TRACKED = {"tracking": {"model": "cars"}}


def _of_several(models: dict[str, Any] | None = None, **keys: Any) -> Recipe:
    named = models or {"people": _NAMED, "cars": {**_NAMED, "iou": 0.6}}
    return recipe_of(
        parse(yaml.safe_dump({"models": named, "sources": [], **keys}, sort_keys=False), may_be_empty=True), "ipc:///x"
    )


def test_several_models_look_at_each_clip() -> None:
    """All, or those that the batch names; those that do not look are neither opened nor settings."""
    both = _of_several()
    assert both.source("clip", Path("1.mkv")).model == ["cars", "people"]
    assert both.settings.keys() == {"models"}
    assert {name: [*row] for name, row in both.settings["models"].items()} == {
        "cars": ["digest", "iou"],
        "people": ["digest"],
    }
    one = _of_several(batch={"source": {"model": "people"}})
    assert (one.config.model_names, [*one.settings["models"]], one.config.model.iou) == (("people",), ["people"], 0.45)
    assert one.digest != both.digest
    backwards = _of_several({"cars": {**_NAMED, "iou": 0.6, "lanes": 2}, "people": _NAMED})
    assert (backwards.digest, backwards.config.model_names) == (both.digest, both.config.model_names)
    named = _of_several(batch={"source": {"model": ["people", "cars"], **_TRACKED}})
    assert named.settings["source"] == _TRACKED


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"batch": {"source": {"model": "dogs"}}}, r"^batch\.source\.model: there is no model 'dogs' \(people, cars\)"),
        ({"batch": {"source": {"tracking": True}}}, r"^batch\.source\.tracking: say whose boxes are tracked"),
        ({"models": {"a": _NAMED, "b": {**_NAMED, "labels": "absent.txt"}}}, r"^models\.b\.labels: absent\.txt cannot"),
        (
            {"models": {f"m{number}": _NAMED for number in range(9)}},
            r"^batch\.source\.model: name the models that look, 8 at most \(m0, m1,",
        ),
    ],
)
def test_what_cannot_be_used_of_several_models_is_one_line(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        _of_several(**keys)
    assert "\n" not in str(raised.value)


def test_the_name_of_a_batch_comes_from_clips_and_settings() -> None:
    one = [Clip(0, "a.mp4", Path("/here/a.mp4"), 1)]
    elsewhere = [Clip(0, "a.mp4", Path("/there/a.mp4"), 1)]
    two = [*one, Clip(1, "b.mp4", Path("/here/b.mp4"), 1)]
    recipe = _recipe()
    assert recipe.batch_id(one) == recipe.batch_id(elsewhere) != recipe.batch_id(two)
    assert _recipe(model={"iou": 0.6}).batch_id(one) != recipe.batch_id(one)


def test_the_daemon_inside_is_alone() -> None:
    """It is lossless, has no API, and keeps no events."""
    found = _recipe(
        board={"mode": "live"}, http={"enabled": True, "token": "x"}, admission="degrade", publisher={"masks": "rle"}
    ).config
    assert (found.board.mode, found.http.enabled, found.admission) == ("lossless", False, "off")
    assert (found.events.journal, found.publisher.endpoint) == ("off", "ipc:///tmp/x")
    assert (found.publisher.masks, found.sources) == ("rle", [])


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"batch": {"source": {"url": "x.mp4"}}}, r"batch\.source\.url: a clip has its own; leave it out"),
        ({"batch": {"source": {"lables": ["x"]}}}, r"^batch\.source.*unknown key `lables`"),
        ({"batch": {"source": {"rules": [_ZONE]}}}, r"^batch\.source\.rules: rules need tracks"),
        ({"batch": {"source": {"tracking": True, "rules": [_BY_DAY]}}},
         r"all: a recording has no time of day: remove `active`"),
        ({"classifiers": [{"name": "c", "path": "c.onnx", "for": ["person"]}]}, "classifiers: how often they look"),
        ({"batch": {"at_once": 0}}, r"batch\.at_once"),
        ({"model": {"labels": "absent.txt"}}, r"model\.labels: absent\.txt cannot be read"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_one_line(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        _recipe(**keys)
    assert "\n" not in str(raised.value)


def test_secrets_are_not_in_settings() -> None:
    found = _recipe(batch={"source": {"options": {"decryption_key": "hunter2"}}})
    assert found.settings["source"]["options"] == {"decryption_key": "***"}


@pytest.mark.parametrize("name", ["${SECRET}.mkv", "a${UNSET}.mkv", "$${SECRET}.mkv"])
def test_the_name_of_a_clip_is_what_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable's value is not put into it."""
    monkeypatch.setenv("SECRET", "hunter2")
    assert _recipe().source("clip", Path("/clips") / name).url.reveal() == f"/clips/{name}"
