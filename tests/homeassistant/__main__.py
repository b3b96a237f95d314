"""Installs Home Assistant into a folder: `python -m tests.homeassistant FOLDER`. LOOKOUT_HOMEASSISTANT names it then.

It has a Python of its own, because it wants 3.13 and an older paho-mqtt than Lookout does.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

_REQUIREMENTS = ("homeassistant==2025.1.4", "paho-mqtt==1.6.1")
_WITHIN_S = 1800


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="python3.13", help="a Python 3.13")
    arguments = parser.parse_args()
    pip = [str(arguments.folder / "bin" / "pip"), "install", "--quiet"]
    for command in ([arguments.python, "-m", "venv", str(arguments.folder)], [*pip, *_REQUIREMENTS]):
        done = subprocess.run(command, check=False, timeout=_WITHIN_S)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed")


if __name__ == "__main__":
    main()
