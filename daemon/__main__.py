"""The `lookout` command, and `python -m daemon`."""

from __future__ import annotations

import sys

from daemon.system.streams import prepare_streams


def main() -> None:
    """Run a command. A daemon or a bridge that is told to end while it is still being loaded ends well."""
    prepare_streams()
    words = [*sys.argv[1:3], "-"]
    if words[0] == "run" or (words[0] == "bridge" and words[1].startswith("-")):  # not one of its own commands
        from daemon.system.signals import exit_on_signals

        exit_on_signals()
        import daemon.system.loading  # noqa: F401
        from daemon import cli
    else:
        from daemon.system.signals import killed_by_interrupts

        with killed_by_interrupts():
            from daemon import cli
    cli.main()


if __name__ == "__main__":
    main()
