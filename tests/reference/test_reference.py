"""config.yaml and the page of the site are made from the code, and each key is explained there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from daemon.config.root import Config, PageConfig
from tests.reference.keys import Struct, all_structs, as_yaml, explanations, keys_of
from tests.reference.page import page
from tests.reference.yaml_file import config_yaml
from tests.support.daemon import ROOT

STRUCTS: list[Struct] = sorted({*all_structs(Config), PageConfig}, key=lambda cls: cls.__name__)


@pytest.mark.parametrize("cls", STRUCTS, ids=lambda cls: cls.__name__)
def test_each_key_is_explained_and_no_other(cls: Struct) -> None:
    assert set(explanations(cls)) == set(cls.__struct_fields__)
    for key in keys_of(cls):
        assert re.fullmatch(r"\S.{3,399}[^.\s]", key.explanation), key


@pytest.mark.parametrize(("name", "made"), [("config.yaml", config_yaml), ("docs/configuration.md", page)])
def test_a_file_is_as_it_is_made(name: str, made: Callable[[], str]) -> None:
    assert (ROOT / name).read_text() == made(), f"{name} is out of date: run `make config`"


def test_numbers_in_an_explanation_are_the_defaults() -> None:
    """Where it names keys of a mapping with values that nobody has to write."""
    snapshots = next(key for cls in STRUCTS for key in keys_of(cls) if key.name == "snapshots")
    defaults = {key.name: as_yaml(key.default) for key in keys_of(snapshots.structs[0]) if not key.is_required}
    assert dict(re.findall(r"(m\w+): (\d+)", snapshots.explanation)) == defaults


class _Mute(msgspec.Struct):
    told: int
    """one"""
    untold: Path = Path("a")


def test_a_key_without_an_explanation_is_an_error() -> None:
    assert explanations(_Mute) == {"told": "one"}
    with pytest.raises(ValueError, match=r"_Mute\.untold: has no explanation"):
        keys_of(_Mute)


@pytest.mark.parametrize(
    ("value", "written"),
    [(5.0, "5"), (0.25, "0.25"), ("off", '"off"'), ("auto", "auto"), (None, "null"), (True, "true"),
     ((1920, 1080), "[1920, 1080]"), ({"a": ["b c"]}, '{a: ["b c"]}'), ("", '""')],
)  # fmt: skip
def test_values_are_written_as_yaml_reads_them(value: object, written: str) -> None:
    assert as_yaml(value) == written
