"""What the log says meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from daemon.config.root import LogConfig
from daemon.log import logging


@contextmanager
def written(folder: Path) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """The lines of the log until now."""
    file = folder / "log"
    with logging(LogConfig(format="json", file=file)):
        yield lambda: [json.loads(line) for line in file.read_text().splitlines()]
