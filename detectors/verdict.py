"""The accuracy of a model in lower precision, as far as it was measured; kept beside the file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from detectors.model import sha256

SCHEMA = "lookout.verdict/1"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement and what followed from it.

    Attributes:
        onnx_sha256: of the file it is about.
        measure: "AP" over labelled photos, or "agreement" with the float model.
        reference: of the float model, by the same measure.
        value: of this one.
        least: what was asked for.
        backend: where it was measured, such as "cpu".
        frames: that it was measured on.
        at: when, UTC.
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
    schema: str = SCHEMA

    @property
    def line(self) -> str:
        """As a table shows it."""
        word = "accepted" if self.accepted else "refused"
        figures = f"{self.measure} {self.value:.4f}, {self.reference:.4f} in float, at least {self.least:.4f} asked for"
        return f"{word}: {figures}; {self.frames} frames, {self.backend}, {self.at}"


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
    return () if verdict.accepted else (f"{model.name} was {verdict.line}",)
