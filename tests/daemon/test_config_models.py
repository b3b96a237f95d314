"""Several models in a configuration: who looks at what, and what is refused with the key that decides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from daemon.config.load import load, parse
from daemon.config.root import Config
from daemon.control.kit import check_devices
from daemon.control.plan import options_of, surfaces_of
from daemon.control.reload import difference
from daemon.errors import ConfigError
from detectors.fake.detector import FakeDetector
from detectors.port import Options

_TWO = "models: {people: {path: p.onnx, confidence: 0.4, lanes: 2}, plates: {path: q.onnx}}\n"


def _config(sources: str, more: str = "", models: str = _TWO) -> Config:
    return parse(f"{models}sources:\n{sources}{more}")


def test_each_model_has_its_sources_and_settings() -> None:
    config = _config(
        "  - {id: a, type: synthetic, model: people, confidence: 0.2, input_size: 320}\n"
        "  - {id: b, type: synthetic, model: plates}\n"
        "  - {id: c, type: synthetic, model: [people, plates], tracking: {model: plates, floor: 0.15},\n"
        "     rules: [{name: door, type: line, points: [[0, 0], [1, 1]]}]}\n",
        "lanes: 3\n",
    )
    people, plates = config.for_model("people"), config.for_model("plates")
    assert config.model_names == ("people", "plates")
    assert [source.id for source in people.active] == ["a", "c"]
    assert [source.id for source in plates.active] == ["b", "c"]
    assert (options_of(people).lanes, options_of(plates).lanes) == (2, 3)
    assert (options_of(people).wanted.confidence, options_of(plates).wanted.confidence) == (0.2, 0.15)
    assert (options_of(people).further_sizes, options_of(plates).further_sizes) == (((320, 320),), ())
    assert [bool(own.tracking_of(own.active[1])) for own in (people, plates)] == [False, True]
    assert [len(own.active[1].rules) for own in (people, plates)] == [0, 1]


def test_one_model_stays_as_it_was() -> None:
    config = parse("model: {path: m}\nsources: [{id: a, type: synthetic}]\n")
    assert config.model_names == ("",)
    assert config.for_model("") is config
    assert config.models_of(config.active[0]) == ("",)


def test_one_named_model_needs_no_name_in_sources() -> None:
    config = _config("  - {id: a, type: synthetic, tracking: true}\n", models="models: {only: {path: p.onnx}}\n")
    assert config.models_of(config.active[0]) == ("only",)
    assert [source.id for source in config.for_model("only").active] == ["a"]


def test_paths_of_models_are_of_the_folder(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"{_TWO}sources: [{{id: a, type: synthetic, model: people}}]\n")
    config = load(file)
    assert config.models["plates"].path == tmp_path / "q.onnx"
    assert config.model == config.models["people"]


def test_pictures_are_enough_for_two_boards() -> None:
    """Each board and each lane may have one."""
    one = _config("  - {id: a, type: synthetic, model: people}\n")
    two = _config("  - {id: a, type: synthetic, model: [people, plates]}\n")
    assert (surfaces_of(one), surfaces_of(two)) == (5, 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_TWO + "model: {path: m}\nsources: [{id: a, type: synthetic}]", "models: there is `model` as well"),
        ("models: {}\nsources: [{id: a, type: synthetic}]", "models: must be a mapping of names"),
        ("models: {'a b': {path: m}}\nsources: [{id: a, type: synthetic}]", "'a b' may hold letters"),
        ("models: {a: {pth: m}}\nsources: [{id: a, type: synthetic}]", "models.a: unknown key `pth`"),
        (_TWO + "sources: [{id: a, type: synthetic}]", r"sources\[0\].model: there are several .*\(people, plates\)"),
        (_TWO + "sources: [{id: a, type: synthetic, model: x}]", r"sources\[0\].model: there is no model 'x'"),
        (_TWO + "sources: [{id: a, type: synthetic, model: [people, people]}]", "names a model twice"),
        ("model: {path: m}\nsources: [{id: a, type: synthetic, model: x}]", "there is one model, without a name"),
        (
            _TWO + "sources: [{id: a, type: synthetic, model: [people, plates], tracking: true}]",
            r"sources\[0\].tracking: say whose boxes are tracked, tracking: {model: NAME}",
        ),
        (
            _TWO + "tracking: {enabled: true}\nsources: [{id: a, type: synthetic, model: [people, plates]}]",
            r"sources\[0\].tracking: say whose",
        ),
        (
            _TWO + "sources: [{id: a, type: synthetic, model: people, tracking: {model: plates}}]",
            r"sources\[0\].tracking.model: 'plates' does not look at it",
        ),
        (
            _TWO + "classifiers: [{name: c, path: c.onnx, for: [car]}]\n"
            "sources: [{id: a, type: synthetic, model: people, tracking: true}]",
            r"classifiers\[0\].model: there are several models: name the one that its labels are",
        ),
    ],
)
def test_what_could_mean_two_things_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_models_on_two_devices_are_refused() -> None:
    """Pictures are on the GPU or in host memory, and not in both."""
    info = FakeDetector(Options(Path("m"))).info
    check_devices({"a": info, "b": info})
    with pytest.raises(ConfigError, match="models: b runs on the GPU, and a by fake, which reads pictures in host"):
        check_devices({"a": info, "b": replace(info, gpu=0)})


def test_a_change_of_one_model_is_of_that_model() -> None:
    source = "  - {id: a, type: synthetic, model: people}\n  - {id: b, type: synthetic, model: plates}\n"
    old = _config(source)
    assert difference(old, _config(source.replace("people}", "people, confidence: 0.1}"))).models == ["people"]
    other = _config(source, models=_TWO.replace("q.onnx", "r.onnx"))
    assert difference(old, other).summary == {"models": ["plates"]}
    moved = difference(old, _config(source.replace("plates}", "[people, plates]}")))
    assert ([row.id for row in moved.changed], moved.models) == (["b"], [])
    fewer = _config(source.replace("plates", "people"), models="models: {people: {path: p.onnx}}\n")
    slower = _config(source, models=_TWO.replace("q.onnx", "q.onnx, backend: cpu"))
    for new, message in ((fewer, "the names of models"), (slower, "models.plates.backend")):
        with pytest.raises(ConfigError, match=f"{message}: cannot change while running"):
            difference(old, new)
