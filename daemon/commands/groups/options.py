"""Options that several groups share."""

from __future__ import annotations

from pathlib import Path

import click

CONFIG = click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    default="config.yaml",
    show_default=True,
    help="Configuration file.",
)
CACHE = click.option("--cache", type=click.Path(path_type=Path), help="Cache folder.  [default: ~/.cache/lookout]")
ENDPOINT = "tcp://127.0.0.1:5556"
FIRST_MODEL = "yolox_nano"  # small, fast on any machine, and of a permissive licence
