"""The `lookout` command, and `python -m daemon`."""

from __future__ import annotations

import sys

from daemon.system.streams import prepare_streams


def main() -> None:
    """Run a command. A daemon that is told to end while it is still being loaded ends well."""
    prepare_streams()
    if sys.argv[1:2] == ["run"]:
        from daemon.system.signals import exit_on_signals

        exit_on_signals()
        import daemon.system.loading  # noqa: F401
    from daemon import cli

    cli.main()


if __name__ == "__main__":
    main()
