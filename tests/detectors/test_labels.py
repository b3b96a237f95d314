"""Labels and other facts that files state, in the spellings of their exporters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from detectors.labels import resolve
from detectors.metadata import stated_semantics
from detectors.port import DetectorError
from detectors.semantics import Semantics

_NAMES = [f"thing {number}" for number in range(12)]  # 10 comes before 2 where numbers are texts
_BY_NUMBER = dict(enumerate(_NAMES))
_NUMBERED = {
    "Python's dictionary": str(_BY_NUMBER),
    "JSON, whose keys are texts": json.dumps(_BY_NUMBER),
    "JSON in any order": json.dumps(dict(reversed(_BY_NUMBER.items()))),
    "keys with quotes": str({str(number): name for number, name in _BY_NUMBER.items()}),
    "from labels to numbers": json.dumps({name: number for number, name in _BY_NUMBER.items()}),
    "COCO's categories": json.dumps([{"id": number, "name": name} for number, name in reversed(_BY_NUMBER.items())]),
    "lines of YAML": "\n".join(f"{number}: {name}" for number, name in _BY_NUMBER.items()),
    "lines of YAML with quotes": "\n".join(f"{number}: '{name}'" for number, name in _BY_NUMBER.items()),
    "a mapping of YAML in one line": "{" + ", ".join(f"{number}: {name}" for number, name in _BY_NUMBER.items()) + "}",
}
_LISTED = {
    "Python's list": str(_NAMES),
    "JSON's list": json.dumps(_NAMES),
    "a tuple": str(tuple(_NAMES)),
    "a list of YAML": "\n".join(f"- {name}" for name in _NAMES),
    "a list without quotes": "[" + ", ".join(_NAMES) + "]",
    "commas": ",".join(_NAMES),
    "semicolons": "; ".join(_NAMES),
    "lines": "\n".join(_NAMES),
}
_SPELLINGS = {**_NUMBERED, **_LISTED}


@pytest.mark.parametrize("spelling", _SPELLINGS)
@pytest.mark.parametrize("classes", [12, None])
def test_labels_come_by_their_numbers(spelling: str, classes: int | None) -> None:
    found = resolve(None, {"names": _SPELLINGS[spelling]}, classes)
    assert found.names == tuple(_NAMES)
    assert (found.origin, found.are_numbered, found.notes) == ("file", spelling in _NUMBERED, ())


@pytest.mark.parametrize(
    "metadata",
    [
        {"classes": json.dumps(_BY_NUMBER)},
        {"class_names": json.dumps(_NAMES)},
        {"config": json.dumps({"model": {"id2label": _BY_NUMBER}, "labels": "a.txt"})},
        {"classes": "12", "labels": ",".join(_NAMES)},
        {"model_info labels": "\n".join(_NAMES)},
    ],
)
def test_labels_under_other_keys(metadata: dict[str, str]) -> None:
    assert resolve(None, metadata, 12).names == tuple(_NAMES)


def test_a_class_without_a_label_keeps_its_number() -> None:
    assert resolve(None, {"names": "{0: 'a', 3: 'b'}"}, 4).names == ("a", "class_1", "class_2", "b")


@pytest.mark.parametrize(
    "names",
    ["{0: 'a', '0': 'b'}", "{-1: 'a', 0: 'b'}", "{0: 'a', 'x': 'b'}", "{99999999: 'a'}", "80", "", "[]", "[[1]]"],
)
def test_what_is_no_list_of_labels_is_refused(names: str) -> None:
    with pytest.raises(DetectorError, match=r"the model's metadata .*: set model\.labels|; set model\.labels"):
        resolve(None, {"names": names}, None)


@pytest.mark.parametrize(
    ("content", "classes", "names"),
    [
        ("a\n\nb\n", 3, ("a", "class_1", "b")),  # a gap
        ("\na\nb\n", 3, ("class_0", "a", "b")),  # a background
        ("a\n\nb\n", 2, ("a", "b")),  # decoration: the model has two classes
        ("a\n\nb\n\n\n", None, ("a", "class_1", "b")),  # an end is none
        ("a\nb\n\n", 3, ("a", "b", "class_2")),  # unless the model has it
        ("\ufeffa\r\nb\r\n", 2, ("a", "b")),
    ],
)
def test_a_blank_line_is_a_gap(content: str, classes: int | None, names: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text(content, encoding="utf-8", newline="")
    assert resolve(str(tmp_path / "labels.txt"), {}, classes).names == names


def test_91_outputs_are_cocos_categories_with_their_gaps() -> None:
    """Category ids reach to 90, and 80 of them are in use."""
    names = resolve("coco", {}, 91).names
    assert len(names) == 91
    assert [names[number] for number in (1, 3, 6, 13, 44, 90)] == [
        "person", "car", "bus", "stop sign", "bottle", "toothbrush",
    ]  # fmt: skip
    assert sum(name.startswith("class_") for name in names) == 11
    assert len(resolve("coco", {}, 80).names) == 80


_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.mark.parametrize(
    "metadata",
    [
        {"mean": str(list(_MEAN)), "std": str(list(_STD))},
        {"mean": str(_MEAN), "std": str(_STD)},
        {"pixel_mean": "0.485 0.456 0.406", "pixel_std": "0.229, 0.224, 0.225"},
        {"image_mean": "[0.485;0.456;0.406]", "image_std": json.dumps(_STD)},
        {"standardization_mean": json.dumps(_MEAN), "standardization_std": json.dumps(_STD)},
        {"image_normalize": json.dumps({"mean": _MEAN, "std": _STD})},
        {"preprocess": str({"resize": 640, "normalize": {"mean": list(_MEAN), "std": list(_STD)}})},
        {"preprocess.mean": str(_MEAN), "preprocess.std": str(_STD)},
        {"mean": str(_MEAN), "pixel_mean": str(_MEAN), "std": str(_STD), "names": "['mean', 'std']"},
    ],
)
def test_mean_and_deviation_that_a_file_states(metadata: dict[str, str]) -> None:
    assert stated_semantics(metadata) == Semantics(mean=_MEAN, std=_STD)


def test_other_facts_are_not_taken_for_them() -> None:
    metadata = {"bbox_mean": "[0, 0, 0, 0]", "bbox_std": "[0.1, 0.1, 0.2, 0.2]", "mean_ap": "x", "stride": "32",
                "names": "{0: 'mean', 1: 'std'}", "std": "none", "meaning": "[1, 2, 3]"}  # fmt: skip
    assert stated_semantics(metadata) == Semantics()


def test_values_for_openvino_are_those_of_0_to_255() -> None:
    found = stated_semantics({"model_info mean_values": "123.675 116.28 103.53", "model_info scale_values": "1 1 1"})
    assert found.mean == pytest.approx(_MEAN)
    assert found.std == pytest.approx((1 / 255,) * 3)


def test_a_fact_that_is_stated_twice_is_for_a_key_to_decide() -> None:
    metadata = {"mean": "0.5", "config": json.dumps({"mean": [0.4, 0.4, 0.4]}), "std": "0.5"}
    with pytest.raises(DetectorError, match=r"two values of mean, .* set model\.mean and model\.std"):
        stated_semantics(metadata)
    assert stated_semantics(metadata, frozenset({"mean"})) == Semantics(std=(0.5, 0.5, 0.5))
