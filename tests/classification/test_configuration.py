"""Mistakes in `classifiers`, each told in one line; and files that are opened as classifiers."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from daemon.classification.open_models import open_classifiers
from daemon.config.load import parse
from daemon.config.root import check
from daemon.control.plan import classifier_options
from daemon.errors import ConfigError
from detectors.factory import open_classifier
from detectors.port import DetectorError
from tests.support.daemon import DEMO_MODEL

_HEADS = Path(__file__).resolve().parents[1] / "data" / "heads"
_GOOD = "model: {path: m}\nsources: [{id: cam, type: synthetic}]\ntracking: {enabled: true}\n"


def _rows(*rows: str) -> str:
    return _GOOD + "classifiers:\n" + "".join(f"  - {{{row}}}\n" for row in rows)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (_rows("name: a, path: x"), r"classifiers\[0\]: missing key `for`"),
        (_rows("name: a, path: x, for: []"), r"classifiers\[0\].for: "),
        (_rows("name: a b, path: x, for: [car]"), r"classifiers\[0\].name: 'a b' may hold letters"),
        (_rows(*["name: a, path: x, for: [car]"] * 2), r"classifiers\[1\].name: 'a' is used twice"),
        (_rows("name: a, path: x, for: [car], agree: 0"), r"classifiers\[0\].agree: must be a number above 0"),
        (_rows("name: a, path: x, for: [car], fit: crop"), r"classifiers\[0\].fit: must be one of cover"),
        (_rows("name: a, path: x, for: [car]").replace("true", "false"), "no source is tracked; set tracking.enabled"),
    ],
)
def test_a_mistake_is_one_line(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        parse(text)
    assert "\n" not in str(raised.value)


def test_sources_may_go_while_it_runs() -> None:
    """A change that removes the last tracked source is no mistake."""
    config = parse(_rows("name: a, path: x, for: [car]"))
    assert check(msgspec.structs.replace(config, sources=[]), may_be_empty=True).classifiers == config.classifiers


def _open(path: Path, more: str = "") -> tuple[str, ...]:
    config = parse(_rows(f"name: kind, path: {path}, for: [car]{more}"))
    jobs = [(row.name, classifier_options(config, row)) for row in config.classifiers]
    (opened,) = open_classifiers(open_classifier, "cpu", jobs)
    opened.close()
    return opened.info.labels


def test_files_of_several_frameworks_are_opened() -> None:
    assert _open(_HEADS / "yolov8-cls.onnx")[0] == "amber"
    colours = ", mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]"
    assert len(_open(_HEADS / "resnet.onnx", colours)) > 1


def test_a_classifier_without_a_family_is_refused_with_the_keys_that_decide() -> None:
    with pytest.raises(DetectorError, match=r"classifiers, name kind: .*set its mean and its std, such as") as raised:
        _open(_HEADS / "resnet.onnx")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (DEMO_MODEL, r"classifiers, name kind: .*demo\.onnx: head not recognised"),
        (_HEADS / "none.onnx", r"classifiers, name kind: .*none\.onnx"),
    ],
)
def test_a_file_that_is_no_classifier_is_refused(path: Path, words: str) -> None:
    with pytest.raises(DetectorError, match=words) as raised:
        _open(path)
    assert "\n" not in str(raised.value)
