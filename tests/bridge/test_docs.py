"""The examples of docs/bridges.md are configurations."""

from __future__ import annotations

import re

import pytest
import yaml

from daemon.config.bridge import BridgeConfig, check_bridge
from daemon.config.http import HttpConfig
from daemon.config.text import hook
from daemon.validation import convert
from tests.support.daemon import ROOT

_BLOCKS = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/bridges.md").read_text(), re.DOTALL)
_BOT, _HOOK = "123456789:AAEhBP0av18aBcDeFgHiJkLmNoPqRsTuVwX", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLVMf"


def _bridge_of(text: str) -> object:
    """The section of an example, which may be a part of it."""
    found = yaml.safe_load(text)
    return {"targets": found} if isinstance(found, list) else found["bridge"]


@pytest.mark.parametrize("number", range(len(_BLOCKS)))
def test_an_example_is_taken(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in re.findall(r"\$\{(\w+)\}", _BLOCKS[number]):
        monkeypatch.setenv(name, _BOT if "BOT" in name else _HOOK if "HOOK" in name else "a-secret")
    config: BridgeConfig = convert(_bridge_of(_BLOCKS[number]), BridgeConfig, hook)
    check_bridge(config, HttpConfig())
    assert config.targets
