"""The command line: its root, where errors become one line and an exit code."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from daemon import __version__
from daemon.bench.commands import bench
from daemon.commands.groups import accuracy, page, running
from daemon.commands.groups.batch import batch
from daemon.commands.groups.engine import engine
from daemon.commands.groups.fleet import fleet
from daemon.commands.groups.keys import keys
from daemon.commands.groups.model import model
from daemon.errors import LookoutError
from daemon.system.signals import leave
from detectors.port import DetectorError

USER_ERROR = 2


def main() -> NoReturn:
    """The `lookout` command."""
    leave(invoke(sys.argv[1:]))


def invoke(args: Sequence[str]) -> int:
    """Run a command; what a user can mend is one line on stderr and exit code 2."""
    try:
        code = cli.main(list(args), prog_name="lookout", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return USER_ERROR
    except click.ClickException as error:
        return _complain(error.format_message())
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:  # `lookout watch | head`
        sys.stderr.close()
        return 0
    except (LookoutError, DetectorError, OSError, RuntimeError, MemoryError, ImportError) as error:
        words = _message_of(error)
        if words is None:
            raise
        return _complain(words)
    return code if isinstance(code, int) else 0


def _message_of(error: Exception) -> str | None:
    """For a person, of what a person can mend; None of anything else."""
    number = getattr(error, "errno", None)
    if isinstance(error, LookoutError | DetectorError):
        return str(error)
    if number in (errno.EMFILE, errno.ENFILE):
        return "the system gives no more open files: raise the limit (`ulimit -n`, LimitNOFILE)"
    if isinstance(error, MemoryError) or number == errno.ENOMEM or "failed to map segment" in str(error):
        return "the system gives no more memory: stop something else, or raise the limit (`ulimit -v`, MemoryMax)"
    if "can't start new thread" in str(error):
        return "the system gives no more threads: raise their limit, or memory's (`ulimit -u`, `ulimit -v`, TasksMax)"
    return None


def _complain(text: str) -> int:
    click.echo(f"lookout: {' '.join(text.split())}", err=True)
    return USER_ERROR


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="lookout")
def cli() -> None:
    """Lookout: video in, YOLO detections out over ZeroMQ."""


for command in (
    running.run,
    running.init,
    running.check,
    running.health,
    running.watch,
    running.events,
    running.demo,
    running.cameras,
    page.dashboard,
    batch,
    model,
    accuracy.evaluate,
    accuracy.calibrate,
    engine,
    keys,
    fleet,
    bench,
):
    cli.add_command(command)
