"""Writes config.yaml and docs/configuration.md: `make config`."""

from __future__ import annotations

from tests.reference.page import page
from tests.reference.yaml_file import config_yaml
from tests.support.daemon import ROOT

if __name__ == "__main__":
    (ROOT / "config.yaml").write_text(config_yaml())
    (ROOT / "docs" / "configuration.md").write_text(page())
