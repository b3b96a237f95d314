"""A file of lines."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from daemon.appended_file import AppendedFile
from daemon.bridge.formats.port import Formatter, formatter
from daemon.bridge.port import AwayError, Connection
from daemon.bridge.records import Delivery, Encoded, Figure
from daemon.bridge.states import StateBoard
from daemon.bridge.targets.opening import TargetContext
from daemon.config.targets import FileTarget

# A pipe whose reader stalls would block for ever.
_NO_FILE = "the path is no regular file: name a file, or remove what is there"


class _Lines:
    def __init__(self, file: AppendedFile, form: Formatter) -> None:
        self._file, self._form = file, form

    def deliver(self, batch: Sequence[Delivery]) -> Sequence[str | None]:
        settled = list[str | None]()
        for delivery in batch:
            self._write(self._form.record(delivery.record), settled)
            settled.append(None)
        return settled

    def show(self, figures: Sequence[Figure]) -> int:
        for figure in figures:
            self._write(self._form.figure(figure), ())
        return len(figures)

    def tend(self, states: StateBoard) -> None:
        """It needs nothing."""

    def close(self) -> None:
        self._file.close()

    def _write(self, lines: Sequence[Encoded], settled: Sequence[str | None]) -> None:
        """Each whole, or none of it: what a full disk has taken of a line is removed."""
        text = b"".join(line.body + b"\n" for line in lines)
        number = self._file.current().fileno()
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode):  # it was put there meanwhile
            raise AwayError(_NO_FILE, settled=settled)
        end = found.st_size
        try:
            written = os.write(number, text)
        except OSError as error:
            raise AwayError(f"the file cannot be written: {error.strerror}", settled=settled) from error
        if written < len(text):
            os.ftruncate(number, end)
            raise AwayError("the file cannot be written: no space left on device", settled=settled)


def connect(target: FileTarget, context: TargetContext) -> Connection:  # noqa: ARG001 - as all have it
    """See `daemon.bridge.targets.opening.open_target`."""
    try:
        file = AppendedFile(target.path)
    except OSError as error:
        raise AwayError(f"{target.path} cannot be opened: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(file.current().fileno()).st_mode):
        file.close()
        raise AwayError(f"{target.path}: {_NO_FILE}")
    return _Lines(file, formatter(target.format))
