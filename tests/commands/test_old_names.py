"""Commands and options under a former name: one line that says the present one, and exit code 2."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from daemon.cli import cli, invoke
from tests.bench.__main__ import bench
from tests.support.daemon import DEMO_MODEL

_MODEL = str(DEMO_MODEL)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("bench streams clip.mp4 --sources 3", "bench streams is now: lookout bench run --repeats 1"),
        ("bench once", "bench once is now: lookout bench run --until-end --repeats 1"),
        ("bench replay clip.mp4", "bench replay is now: lookout bench run"),
        ("bench sweep --batches 1,2", "bench sweep is now: lookout bench search --over batch=1,2,4,8"),
        ("bench capacity clip.mp4", "bench capacity is now: lookout bench search --most sources"),
        ("bench decode clip.mp4", "bench decode is now: lookout bench part decode"),
        ("bench engine model.onnx", "bench engine is now: lookout bench part engine"),
        ("bench overhead", "bench overhead is now: python -m tests.bench python, in a checkout"),
        ("bench efficiency clip.mp4", "bench efficiency is now: python -m tests.bench python CLIP, in a checkout"),
        ("bench verify a.jsonl b.jsonl", "bench verify is now: lookout bench compare"),
        ("bench peers --help", "bench peers is now: python -m tests.peers, in a checkout"),
        ("bench loop clip.mp4", "bench loop is now: python -m tests.peers --only plain, in a checkout"),
        ("bench churn --drops 5", "bench churn is now: python -m tests.gpu.churn, in a checkout"),
        ("bench dashboard --viewers 9", "bench dashboard is now: python -m tests.bench dashboard, in a checkout"),
        ("bench part python --sources 150", "bench part python is now: python -m tests.bench python, in a checkout"),
        ("bench part analytics", "bench part analytics is now: python -m tests.bench analytics, in a checkout"),
        ("bench part fleet --help", "bench part fleet is now: python -m tests.bench fleet, in a checkout"),
        (f"bench part engine {_MODEL} --peer all", "--peer is now: python -m tests.bench engine --peer, in a checkout"),
        (
            f"bench part engine {_MODEL} --server http://127.0.0.1/m --max-batch 8",
            "--server is now: python -m tests.bench engine --peer, in a checkout",
        ),
        ("evaluate --level 3", "--level is now: --builder-level"),
        (f"calibrate {_MODEL} --from . --level 3", "--level is now: --builder-level"),
        (f"engine build {_MODEL} --level 3", "--level is now: --builder-level"),
        (f"engine compare {_MODEL} --level 3", "--level is now: --builder-level"),
        (f"engine profile {_MODEL} --level 3", "--level is now: --builder-level"),
        ("model get yolox_nano --to .", "--to is now: --out"),
        ("model export yolo.pt --size 640", "--size is now: --input-size WIDTH HEIGHT"),
    ],
)
def test_a_former_name_says_the_present_one(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(words.split()) == 2
    assert capsys.readouterr().err == f"lookout: {said}\n"


def test_a_former_name_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["bench"], ["bench", "part"], ["bench", "part", "engine"], ["evaluate"], ["model", "get"]):
        assert invoke([*words, "--help"]) == 0
    shown = capsys.readouterr().out.split()
    assert not {"dashboard", "python", "fleet", "--peer", "--level", "--to"} & {*shown}


def _options(command: click.Command) -> Iterator[click.Option]:
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            yield from _options(inner)
    yield from (option for option in command.params if isinstance(option, click.Option) and not option.hidden)


def test_an_option_that_sets_a_key_is_spelt_as_the_key() -> None:
    found = {
        (max(option.opts, key=len), key[1])
        for option in (*_options(cli), *_options(bench))
        if (key := re.search(r"\bas \w+\.(\w+)", option.help or "", re.IGNORECASE))
    }
    assert len(found) > 5
    assert {f"--{key.replace('_', '-')}" for _, key in found} == {option for option, _ in found}
