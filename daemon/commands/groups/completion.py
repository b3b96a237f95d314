"""Completion of what is typed in a shell."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from daemon.commands.groups.options import examples

SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command(
    epilog=examples(
        'eval "$(lookout completion bash)"  # in ~/.bashrc',
        "lookout completion zsh > ~/.zfunc/_lookout  # in a folder of fpath",
        "lookout completion fish > ~/.config/fish/completions/lookout.fish",
    )
)
@click.argument("shell", type=click.Choice([*SHELLS]))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the script that completes commands, options, values and files in SHELL.

    A package of a distribution has it installed already.
    """
    click.echo(script(context.find_root().command, shell), nl=False)
    return 0


def script(root: click.Command, shell: str) -> str:
    """The script for one of `SHELLS`, which asks the command `lookout` itself: it is the same for all versions."""
    completing = SHELLS[shell](root, {}, "lookout", "_LOOKOUT_COMPLETE")
    return ShellComplete.source(completing)  # bash's own would start a bash to look at its version
