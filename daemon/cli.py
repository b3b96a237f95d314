"""The command line: its root, where errors become one line and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from daemon import __version__
from daemon.bench.commands import bench
from daemon.commands.groups import accuracy, page, running
from daemon.commands.groups.batch import batch
from daemon.commands.groups.bridge import bridge
from daemon.commands.groups.completion import completion
from daemon.commands.groups.engine import engine
from daemon.commands.groups.fleet import fleet
from daemon.commands.groups.keys import keys
from daemon.commands.groups.model import model
from daemon.commands.groups.recordings import recordings
from daemon.errors import LookoutError, OutputError
from daemon.redact import printable, scrub
from daemon.system.signals import leave
from daemon.system.streams import flush_streams
from detectors.port import DetectorError

OUTPUT_ERROR, USER_ERROR = 1, 2
_MISTAKES = " mistakes: "
_OURS = ("daemon", "detectors", "calibration", "lookout", "lookoutd")
_PACKAGES = {"cv2": "opencv-python-headless", "yaml": "pyyaml", "zmq": "pyzmq"}  # by modules of other names


def main() -> NoReturn:
    """The `lookout` command."""
    leave(invoke(sys.argv[1:]))


def invoke(args: Sequence[str], root: click.Command | None = None, name: str = "lookout") -> int:
    """Run a command; what a user can mend is one line on stderr and exit code 2.

    Args:
        root: of the commands, those of `lookout` if there is none; `name` is how it is started.
    """
    try:
        code = (root or cli).main(list(args), prog_name=name, standalone_mode=False)
        flush_streams()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return USER_ERROR
    except click.ClickException as error:
        return _complain(error.format_message())
    except (KeyboardInterrupt, click.Abort):
        return 130
    except OutputError as error:
        return _complain(str(error), OUTPUT_ERROR)
    except (LookoutError, DetectorError, OSError, RuntimeError, MemoryError, ImportError, UnicodeError) as error:
        words = _message_of(error)
        if words is None:
            raise
        return _complain(words, mistakes=getattr(error, "mistakes", ()))
    return code if isinstance(code, int) else 0


def _message_of(error: Exception) -> str | None:
    """For a person, of what a person can mend; None of anything else."""
    if isinstance(error, LookoutError | DetectorError):
        return str(error)
    return _of_the_system(error) or _of_a_module(error) or _of_a_name(error)


def _of_the_system(error: Exception) -> str | None:
    number = getattr(error, "errno", None)
    if number in (errno.EMFILE, errno.ENFILE):
        return "the system gives no more open files: raise the limit (`ulimit -n`, LimitNOFILE)"
    if isinstance(error, MemoryError) or number == errno.ENOMEM or "failed to map segment" in str(error):
        return "the system gives no more memory: stop something else, or raise the limit (`ulimit -v`, MemoryMax)"
    if "can't start new thread" in str(error):
        return "the system gives no more threads: raise their limit, or memory's (`ulimit -u`, `ulimit -v`, TasksMax)"
    return None


def _of_a_module(error: Exception) -> str | None:
    """Of a library that is not there; each command imports those that it needs before it begins its work."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if not name or name in _OURS:
        return None
    return f"{name} is not installed: pip install {_PACKAGES.get(name, name)}"


def _of_a_name(error: Exception) -> str | None:
    """Of a path that is too long, may not be entered, read or written, or whose bytes are no text."""
    if isinstance(error, OSError) and isinstance(error.filename, str | bytes):
        return scrub(f"{os.fsdecode(error.filename)}: {error.strerror}")
    if isinstance(error, UnicodeEncodeError) and "surrogates" in error.reason:
        return "a name has bytes that are no UTF-8, and cannot be used here: rename it"
    if "home directory" in str(error):
        return "no home folder is known: set HOME"
    return None


def _complain(text: str, code: int = USER_ERROR, mistakes: Sequence[str] = ()) -> int:
    """Say it in one line, or several mistakes in one each; whatever a library, a server or a name put into it, a
    terminal obeys nothing of it."""
    head, many, _ = text.partition(_MISTAKES)
    lines = [f"{head}{many.rstrip()}", *mistakes] if mistakes and many else [text]
    for index, line in enumerate(lines):
        click.echo(f"{'  ' if index else 'lookout: '}{printable(' '.join(line.split()))}", err=True)
    return code


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="lookout")
def cli() -> None:
    """Lookout: video in, YOLO detections out over ZeroMQ."""


for command in (
    running.run,
    running.init,
    running.check,
    running.status,
    running.reload,
    running.log_level,
    running.health,
    running.watch,
    running.events,
    running.demo,
    running.cameras,
    page.dashboard,
    bridge,
    batch,
    model,
    accuracy.evaluate,
    accuracy.calibrate,
    engine,
    keys,
    fleet,
    recordings,
    bench,
    completion,
):
    cli.add_command(command)
