"""Install as `pip install` does, with pip's configuration, but by uv, which takes seconds; by pip where uv fails.

python .ci/install.py ARGUMENTS installs into the environment of that Python.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_PIP = (sys.executable, "-m", "pip")
_QUIET = ("--quiet", "--disable-pip-version-check")
# uv does not read pip's configuration: its keys, and uv's options for them.
_OPTIONS = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "constraint": "--constraints",
    "trusted-host": "--allow-insecure-host",
    "cert": "--cert",
}


def _configuration() -> dict[str, str]:
    """pip's, of all its files and variables; the later ones count."""
    listed = subprocess.run([*_PIP, "config", "list"], check=True, capture_output=True, text=True).stdout
    rows = dict(line.split("=", 1) for line in listed.splitlines() if "=" in line)
    sections = ("global.", "install.", ":env:.")
    return {
        name.removeprefix(section): str(ast.literal_eval(value))
        for section in sections
        for name, value in rows.items()
        if name.startswith(section)
    }


def _options(configuration: dict[str, str]) -> Iterator[str]:
    for key, option in _OPTIONS.items():
        for value in configuration.get(key, "").split():
            yield from (option, value)
    if configuration.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        yield "--no-index"


def _uv() -> str | None:
    """The program, which pip installs if need be."""
    own = Path(sys.executable).with_name("uv")
    if not own.exists() and shutil.which("uv") is None:
        subprocess.run([*_PIP, "install", *_QUIET, "uv"], check=False)
    return str(own) if own.exists() else shutil.which("uv")


def main() -> int:
    arguments = sys.argv[1:]
    if uv := _uv():
        # As pip does it, which asks all indexes and takes the newest of what they have.
        command = (uv, "pip", "install", "--quiet", "--python", sys.executable, "--index-strategy", "unsafe-best-match")
        if subprocess.run([*command, *_options(_configuration()), *arguments], check=False).returncode == 0:
            return 0
    print("pip installs what uv does not", file=sys.stderr)
    return subprocess.run([*_PIP, "install", *_QUIET, "--no-compile", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
