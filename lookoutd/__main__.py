"""The `lookout` command: beside the packages of Lookout, because another distribution may have one called `daemon`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run a command, or say in one line that the daemon's package is another's, or that the client's is not there."""
    try:
        from daemon import __version__  # noqa: F401 - which another's has not
        from daemon.__main__ import main as run
    except ImportError as error:
        if others := _others():
            remedy = "install Lookout in an environment of its own, such as `python3 -m venv lookout`"
            sys.stderr.write(f"lookout: {' and '.join(others)} has a package `daemon`, too: {remedy}\n")
        elif (error.name or "").partition(".")[0] == "lookout":
            remedy = "install lookout-client of the same version as lookoutd"
            sys.stderr.write(f"lookout: the package `lookout` is not there, or is another's ({error}): {remedy}\n")
        else:
            raise
        sys.exit(2)
    run()


def _others() -> list[str]:
    """Distributions with a package of the same name."""
    from importlib.metadata import packages_distributions  # slow to load, and seldom needed

    return sorted({*packages_distributions().get("daemon", ())} - {"lookoutd"})


if __name__ == "__main__":
    main()
