"""Writes man pages and completions into a folder such as /usr/share: `python -m tests.manual FOLDER`."""

from __future__ import annotations

import os
import sys
from datetime import datetime, timezone
from pathlib import Path

from daemon.cli import cli
from daemon.commands.groups.completion import SHELLS, script
from tests.manual.commands_page import commands_page
from tests.manual.config_page import config_page

_COMPLETIONS = {
    "bash": "bash-completion/completions/lookout",
    "zsh": "zsh/site-functions/_lookout",
    "fish": "fish/vendor_completions.d/lookout.fish",
}


def files() -> dict[str, str]:
    """The text of each file, by its path in the folder. SOURCE_DATE_EPOCH is the day of the pages, if it is set."""
    stamp = os.environ.get("SOURCE_DATE_EPOCH")
    day = (datetime.fromtimestamp(int(stamp), timezone.utc) if stamp else datetime.now(timezone.utc)).date()
    pages = {"man/man1/lookout.1": commands_page(day), "man/man5/lookout.yaml.5": config_page(day)}
    return pages | {_COMPLETIONS[shell]: script(cli, shell) for shell in SHELLS}


def write(folder: Path) -> None:
    """Debian's zsh looks into a folder of its own for what packages bring, which is not in /usr/local."""
    own = "vendor-completions" if folder.absolute().parent.name == "usr" else "site-functions"
    for name, text in files().items():
        path = folder / name.replace("site-functions", own)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("python -m tests.manual FOLDER: a folder such as /usr/local/share")
    write(Path(sys.argv[1]))
