"""The accuracy record of a model in lower precision, a file beside the model."""

from __future__ import annotations

from pathlib import Path

import msgspec

from detectors.model import digest_of
from detectors.port import DetectorError

SCHEMA = "lookout.verdict/2"


class AccuracyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement and its ruling. Names of fields are keys of the file; lookout.verdict/1 has no interval.

    Attributes:
        onnx_sha256: of the model, see `detectors.model`.
        measure: "AP" or "top-1" over labelled photos, or "agreement" with the float model.
        reference: the float model's value.
        value: this model's value.
        least: the lowest accepted value.
        backend: on which it was measured, such as "cpu".
        frames: number of frames measured on.
        at: time in UTC.
        ruling: "accepted", "refused" or "undecided"; empty in /1.
        drop, low, high: the measured loss and its 95 % interval.
        units, unit: number and kind of independent units behind the interval, such as "photos".
        budget: the allowed loss.
        more: estimate of further units needed for a decision; None if decided, or if no number would decide.
    """

    onnx_sha256: str
    precision: str
    accepted: bool
    measure: str
    reference: float
    value: float
    least: float
    backend: str
    frames: int
    at: str
    ruling: str = ""
    drop: float | None = None
    low: float | None = None
    high: float | None = None
    units: int = 0
    unit: str = ""
    budget: float | None = None
    more: int | None = None
    schema: str = SCHEMA

    @property
    def finding(self) -> str:
        """The loss, its interval and the ruling, in one line."""
        word = self.ruling or ("accepted" if self.accepted else "refused")
        if self.drop is None or self.low is None or self.high is None or self.budget is None:
            return (
                f"{word}: {self.measure} {self.value:.4f}, {self.reference:.4f} in float, "
                f"at least {self.least:.4f} required"
            )
        seen = f"drop {self.drop:+.4f} (95 %: {self.low:+.4f} to {self.high:+.4f}) over {self.units} {self.unit}"
        return f"{seen}, {self.budget:.4f} allowed: {word}{self._remedy if word == 'undecided' else ''}"

    @property
    def line(self) -> str:
        """The record in one line, for tables."""
        if self.drop is None:
            return f"{self.finding}; {self.frames} frames, {self.backend}, {self.at}"
        return f"{self.measure} {self.value:.4f}, {self.finding}; {self.backend}, {self.at}"

    @property
    def _remedy(self) -> str:
        if self.more is None:
            return ", too close to the budget for more data to decide"
        return f", about {rounded(self.more):,} more {self.unit} would decide"


def rounded(count: int) -> int:
    """Rounded to two digits, because the count is an estimate."""
    unit = int(10 ** max(0, len(str(count)) - 2))
    return round(count / unit) * unit


def path_of(model: Path) -> Path:
    """The record's path, beside the model."""
    return model.with_suffix(".verdict.json")


def write(model: Path, record: AccuracyRecord) -> None:
    path_of(model).write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")


def find(model: Path, digest: str | None = None) -> AccuracyRecord | None:
    """A model's accuracy record; None if there is none, or if it is for other content.

    Args:
        digest: the model's SHA-256, if known.
    """
    try:
        record = msgspec.json.decode(path_of(model).read_bytes(), type=AccuracyRecord)
        known = digest or digest_of(model)
    except (OSError, msgspec.MsgspecError, DetectorError):
        return None
    return record if record.onnx_sha256 == known else None


def note(model: Path, precision: str, digest: str | None = None) -> tuple[str, ...]:
    """Notes for users of a quantised model: empty if it was accepted."""
    record = find(model, digest)
    if record is None:
        return (
            f"{model.name} is {precision.upper()} and has no accuracy record: run `lookout calibrate` to measure it",
        )
    return () if record.accepted else (f"{model.name}: {record.line}",)
