"""The background of evidence: settings without secrets, events of the journal, versions, the machine's clock."""

from __future__ import annotations

import ctypes
import platform
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import msgspec

from daemon.analytics.journal_file import Query, read
from daemon.config.root import Config
from daemon.errors import LookoutError
from daemon.recording.evidence.manifest import MachineClock
from daemon.redact import Secret
from lookout.messages import Event

_PAGE: Final = 1000
_LATE_NS: Final = 3_600_000_000_000  # an event may be written so long after it began
_UNSYNCHRONISED: Final = 0x40  # STA_UNSYNC of adjtimex(2)
_ERROR: Final = 5  # TIME_ERROR
_PACKAGES: Final = ("av", "onnxruntime", "numpy")


@dataclass(frozen=True)
class Background:
    """
    Attributes:
        settings: of the source, plain JSON values without secrets; None where they are not known.
        reason: why they are not.
        journal: the file of events; None without one.
        digests: SHA-256 of the files of models.
        events: as `told_events` gives them, if they were read already.
    """

    settings: Any = None
    reason: str | None = None
    journal: Path | None = None
    digests: Sequence[str] = ()
    events: Any = None


def settings_of(config: Config, source: str) -> Any:
    """How a source is configured, as plain JSON values without secrets; None if it is not there."""
    found = next((row for row in config.sources if row.id == source), None)
    if found is None:
        return None
    record = config.record
    kept = {"mode": record.mode, "pre_s": record.pre_s, "post_s": record.post_s, "max_clip_s": record.max_clip_s,
            "keep": record.keep, "tracks": record.tracks}  # fmt: skip
    return msgspec.to_builtins({"source": found, "record": kept}, enc_hook=_hidden)


def events_of(journal: Path, source: str, begin: int, end: int) -> list[Event]:
    """Events of a source that began in a time, UTC ns, in the order of their numbers.

    Raises:
        sqlite3.Error, msgspec.MsgspecError: the journal cannot be read.
    """
    return sorted((row for row in _pages(journal, source, begin, end) if begin <= row.at < end),
                  key=lambda row: row.number)  # fmt: skip


def told_events(journal: Path | None, source: str, begin: int, end: int) -> Any:
    """The same for a file of the folder, or the reason why there are none."""
    if journal is None:
        return no_events("no journal is known")
    try:
        return {"events": events_of(journal, source, begin, end), "reason": None}
    except (sqlite3.Error, msgspec.MsgspecError) as error:
        return no_events(f"the journal cannot be read: {error}")


def no_events(reason: str) -> Any:
    return {"events": None, "reason": reason}


def model_files(config: Config) -> list[Path]:
    """Of all models of a configuration."""
    return [model.path for model in (config.model, *config.models.values())]


def digests_of(files: Sequence[Path]) -> list[str]:
    """SHA-256 of the models that can be read. It takes seconds."""
    from detectors.model import digest_of
    from detectors.port import DetectorError

    found = []
    for path in files:
        with suppress(DetectorError, LookoutError, OSError, TypeError):
            found.append(digest_of(Path(path)))
    return found


def _pages(journal: Path, source: str, begin: int, end: int) -> Iterator[Event]:
    since = 0
    while True:
        rows = read(journal, Query(since, _PAGE, source, begin=begin, end=end + _LATE_NS))
        yield from rows
        if len(rows) < _PAGE:
            return
        since = rows[-1].number


def versions() -> dict[str, str]:
    """Of what has written the folder."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("rest", ctypes.c_long))


class _Timex(ctypes.Structure):
    """See adjtimex(2); the rest is longer than that of any system."""

    _fields_ = (
        ("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long), ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long), ("status", ctypes.c_int), ("constant", ctypes.c_long),
        ("precision", ctypes.c_long), ("tolerance", ctypes.c_long), ("time", _Time), ("tick", ctypes.c_long),
        ("others", ctypes.c_byte * 256),
    )  # fmt: skip


def machine_clock() -> MachineClock | None:
    """As the kernel says; None where it does not."""
    found = _Timex()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(found))
    except AttributeError:
        return None
    if state < 0:
        return None
    synchronised = state != _ERROR and not found.status & _UNSYNCHRONISED
    return MachineClock(synchronised=synchronised, max_error_ns=found.maxerror * 1000)


def _hidden(value: object) -> str:
    if isinstance(value, Secret | Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be encoded")
