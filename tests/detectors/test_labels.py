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
    "JSON within JSON": json.dumps(json.dumps(_BY_NUMBER)),
    "JSON with a comma at its end": json.dumps(_BY_NUMBER)[:-1] + ",}",
    "pairs": json.dumps(list(_BY_NUMBER.items())),
    "an ordered dictionary": f"OrderedDict({list(_BY_NUMBER.items())})",
    "mappings with other facts": json.dumps({number: {"name": name, "rgb": 1} for number, name in _BY_NUMBER.items()}),
    "lines with numbers": "\n".join(f"{number} {name}" for number, name in _BY_NUMBER.items()),
    "lines with numbers and tabs": "\r\n".join(f"{number}\t{name}" for number, name in _BY_NUMBER.items()),
    "a mapping of YAML in one line": "{" + ", ".join(f"{number}: {name}" for number, name in _BY_NUMBER.items()) + "}",
}
_LISTED = {
    "Python's list": str(_NAMES),
    "JSON's list": json.dumps(_NAMES),
    "a list with a comma at its end": json.dumps(_NAMES)[:-1] + ",]",
    "JSON's list within JSON": json.dumps(json.dumps(_NAMES)),
    "mappings without numbers": json.dumps([{"name": name} for name in _NAMES]),
    "a byte order mark": "\ufeff" + json.dumps(_NAMES),
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
        {"label2id": json.dumps({name: number for number, name in _BY_NUMBER.items()})},
        {"classNames": json.dumps(_NAMES)},
        {"names": json.dumps(_NAMES), "id2label": json.dumps({number: f"LABEL_{number}" for number in range(12)})},
        {"names": json.dumps(_NAMES), "classes": str(list(range(12)))},
    ],
)
def test_labels_under_other_keys(metadata: dict[str, str]) -> None:
    assert resolve(None, metadata, 12).names == tuple(_NAMES)


def test_a_class_without_a_label_keeps_its_number() -> None:
    assert resolve(None, {"names": "{0: 'a', 3: 'b'}"}, 4).names == ("a", "class_1", "class_2", "b")
    assert resolve(None, {"names": '{"3": "b", "0": "a", "1": null}'}, 4).names == ("a", "class_1", "class_2", "b")


def test_two_lists_that_differ_are_for_a_key_to_decide() -> None:
    metadata = {"names": "['a', 'b']", "id2label": '{"0": "red", "1": "blue"}'}
    with pytest.raises(DetectorError, match=r"two lists of labels, `names` and `id2label`: set model\.labels"):
        resolve(None, metadata, 2)
    assert resolve("coco", metadata, 80).names[0] == "person"


@pytest.mark.parametrize(
    "names",
    [
        "{0: 'a', '0': 'b'}",
        "{-1: 'a', 0: 'b'}",
        "{0: 'a', 'x': 'b'}",
        "{99999999: 'a'}",
        "80",
        "",
        "[]",
        "[[1]]",
        "['a' 'b']",
        "array(['a', 'b'], dtype='<U4')",
        "{0: ['a'], 1: 'b'}",
    ],
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
        {"imageMean": json.dumps([str(part) for part in _MEAN]), "imageStd": f"tensor({list(_STD)})"},
        {"mean": json.dumps([[part] for part in _MEAN]), "std": json.dumps([[part] for part in _STD])},
        {"mean": str(_MEAN), "pixel_mean": "[123.675, 116.28, 103.53]", "std": str(_STD)},
        {"config": json.dumps(json.dumps({"image_mean": _MEAN, "image_std": _STD, "do_normalize": True}))},
        {"mean": str(_MEAN), "std": str(_STD), "mean_ap": "0.51", "std_of_ap": "[1, 2]"},
        {"mean": str(_MEAN), "pixel_mean": str(_MEAN), "std": str(_STD), "names": "['mean', 'std']"},
    ],
)
def test_mean_and_deviation_that_a_file_states(metadata: dict[str, str]) -> None:
    assert stated_semantics(metadata) == Semantics(mean=_MEAN, std=_STD)


def test_other_facts_are_not_taken_for_them() -> None:
    metadata = {"bbox_mean": "[0, 0, 0, 0]", "bbox_std": "[0.1, 0.1, 0.2, 0.2]", "mean_ap": "x", "stride": "32",
                "names": "{0: 'mean', 1: 'std'}", "std": "none",
                "label2id": "{'mean': 0, 'std': 1, 'rgb': 2}", "meaning": "[1, 2, 3]"}  # fmt: skip
    assert stated_semantics(metadata) == Semantics()


def test_values_for_openvino_are_those_of_0_to_255() -> None:
    found = stated_semantics({"model_info mean_values": "123.675 116.28 103.53", "model_info scale_values": "1 1 1"})
    assert found.mean == pytest.approx(_MEAN)
    assert found.std == pytest.approx((1 / 255,) * 3)
    named = stated_semantics({"mean_values": "data[123.675,116.28,103.53]", "scale_values": "data[1,1,1]"})
    assert named == found


def test_a_fact_that_is_stated_twice_is_for_a_key_to_decide() -> None:
    metadata = {"mean": "0.5", "config": json.dumps({"mean": [0.4, 0.4, 0.4]}), "std": "0.5"}
    with pytest.raises(DetectorError, match=r"two values of mean, .* set model\.mean and model\.std"):
        stated_semantics(metadata)
    assert stated_semantics(metadata, frozenset({"mean"})) == Semantics(std=(0.5, 0.5, 0.5))


def test_a_preprocessor_that_does_not_normalise_leaves_colours_as_they_are() -> None:
    """That of RT-DETR has a mean and a deviation, and does not use them."""
    facts = {"image_mean": _MEAN, "image_std": _STD, "do_normalize": False, "rescale_factor": 1 / 255}
    plain = Semantics(mean=(0, 0, 0), std=(1, 1, 1))
    assert stated_semantics({"preprocessor_config": json.dumps(facts)}) == plain
    raw = stated_semantics({"preprocessor_config": json.dumps({**facts, "do_rescale": False})})
    assert raw.std == (1 / 255,) * 3  # colours of 0 to 255


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"mean": "imagenet", "std": "imagenet"}, "a mean that is not three numbers, mean 'imagenet'"),
        ({"mean": "[0.4, 0.4]", "std": "1"}, "a mean that is not three numbers"),
        ({"mean": "0", "std": "[1, 1, 1, 1]"}, "a std that is not three numbers"),
        ({"mean": "nan", "std": "1"}, "a mean that is not three numbers"),
        ({"mean": "{'r': 0.4, 'g': 0.4, 'b': 0.4}", "std": "1"}, "a mean that is not three numbers"),
        ({"mean": "0.5", "std": "0.5", "normalize": "False"}, "beside a rescale_factor, or normalize: false"),
        ({"mean": "0.5", "std": "0.5", "rescale_factor": "0.0078"}, "beside a rescale_factor"),
    ],
)
def test_colours_that_cannot_be_read_are_for_keys_to_decide(metadata: dict[str, str], words: str) -> None:
    with pytest.raises(DetectorError, match=f"{words}.*set model\\.mean and model\\.std"):
        stated_semantics(metadata)
    assert stated_semantics(metadata, frozenset({"mean", "std"})) == Semantics()


@pytest.mark.parametrize(
    ("metadata", "is_rgb"),
    [
        ({"color_space": "BGR"}, False),
        ({"input_format": "bgr"}, False),
        ({"channels": "BGR"}, False),
        ({"color_format": "RGB888"}, True),
        ({"colorSpace": "sRGB"}, True),
        ({"bgr": "true"}, False),
        ({"config": '{"data_preprocessor": {"bgr_to_rgb": false}}'}, False),
        ({"to_rgb": "True"}, True),
        ({"swapRB": "1"}, True),
        ({"pixel_mean_bgr": "[103.53, 116.28, 123.675]"}, False),
        ({"channels": "3", "format": "onnx", "rgb": "[1, 2, 3]"}, None),
    ],
)
def test_the_order_of_channels_that_a_file_states(metadata: dict[str, str], is_rgb: bool | None) -> None:
    assert stated_semantics(metadata).rgb is is_rgb


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"color_space": "GRAY"}, "color_space 'GRAY', and Lookout gives RGB or BGR: export"),
        ({"color_space": "BGR", "to_rgb": "1"}, "two orders of channels, by color_space and to_rgb: export"),
    ],
)
def test_other_orders_of_channels_are_refused(metadata: dict[str, str], words: str) -> None:
    with pytest.raises(DetectorError, match=words):
        stated_semantics(metadata)
