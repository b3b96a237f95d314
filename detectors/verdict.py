"""The accuracy of a model in lower precision, as far as it was measured; kept beside the file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from detectors.model import sha256

SCHEMA = "lookout.verdict/2"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement and the ruling that followed. Files of lookout.verdict/1 have no interval.

    Attributes:
        onnx_sha256: of the file it is about.
        measure: "AP" over labelled photos, or "agreement" with the float model.
        reference: of the float model, by the same measure.
        value: of this one.
        least: what was asked for.
        backend: where it was measured, such as "cpu".
        frames: that it was measured on.
        at: when, UTC.
        ruling: "accepted", "refused" or "undecided"; empty in /1.
        drop, low, high: the loss that was seen, and the bounds of its 95 % interval.
        units, unit: how many independent units the interval rests on, and of what, such as "photos".
        budget: the loss that was allowed.
        more: about how many more to give for a decision; None where no number would do, and where there is one.
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
        """What was seen, between which bounds, and what follows."""
        word = self.ruling or ("accepted" if self.accepted else "refused")
        if self.drop is None or self.low is None or self.high is None or self.budget is None:
            return (
                f"{word}: {self.measure} {self.value:.4f}, {self.reference:.4f} in float, "
                f"at least {self.least:.4f} asked for"
            )
        seen = f"drop {self.drop:+.4f} (95 %: {self.low:+.4f} to {self.high:+.4f}) over {self.units} {self.unit}"
        return f"{seen}, {self.budget:.4f} allowed: {word}{self._remedy if word == 'undecided' else ''}"

    @property
    def line(self) -> str:
        """As a table shows it."""
        if self.drop is None:
            return f"{self.finding}; {self.frames} frames, {self.backend}, {self.at}"
        return f"{self.measure} {self.value:.4f}, {self.finding}; {self.backend}, {self.at}"

    @property
    def _remedy(self) -> str:
        if self.more is None:
            return ", and too near to what is allowed for more to tell"
        return f", about {rounded(self.more):,} more {self.unit} would tell"


def rounded(count: int) -> int:
    """To two digits: how many more are needed is an estimate."""
    unit = int(10 ** max(0, len(str(count)) - 2))
    return round(count / unit) * unit


def path_of(model: Path) -> Path:
    """The file beside a model."""
    return model.with_suffix(".verdict.json")


def write(model: Path, verdict: Verdict) -> None:
    path_of(model).write_bytes(msgspec.json.format(msgspec.json.encode(verdict), indent=2) + b"\n")


def find(model: Path, digest: str | None = None) -> Verdict | None:
    """The verdict on a model; None where there is none, or where it is on another content.

    Args:
        digest: the model's SHA-256, if somebody knows it already.
    """
    try:
        verdict = msgspec.json.decode(path_of(model).read_bytes(), type=Verdict)
        known = digest or sha256(model.read_bytes())
    except (OSError, msgspec.MsgspecError):
        return None
    return verdict if verdict.onnx_sha256 == known else None


def note(model: Path, precision: str, digest: str | None = None) -> tuple[str, ...]:
    """What to tell who runs a quantised model: nothing if it was accepted."""
    verdict = find(model, digest)
    if verdict is None:
        return (
            f"{model.name} is {precision}, and nobody says what that costs: `lookout calibrate` makes and measures",
        )
    return () if verdict.accepted else (f"{model.name}: {verdict.line}",)
