"""The results of a framework, in a file beside its model. Pure numpy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from detectors.semantics import Semantics
from tests.frameworks.inputs import Floats, Placing

PICTURES = 200
MASKED, FINELY_MASKED = 20, 4  # the pictures whose masks are stored
_STEPS = {"score": 1 << 14, "angle": 1 << 12, **dict.fromkeys(("x1", "y1", "x2", "y2", "cx", "cy", "w", "h"), 128)}
Masks = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Expected:
    """What a framework finds in `tests.support.pictures.picture(0)` to `picture(199)`.

    Attributes:
        rows: (n, columns), in the framework's order within a picture. `facts["columns"]` names the columns.
            Coordinates are pixels of the picture, and a score is a confidence.
        sure: of each picture, whether its rows stay the same where thresholds are a little lower or higher.
        masks: of the rows of the first 20 pictures, (n, height, width) at a quarter of the input's size.
        fine: of the rows of the first 4 pictures, at the input's size.
        facts: framework and its version, columns, placing of pictures by the framework's own processor, thresholds, the
            head that a user must name, and the digest of the pictures.
    """

    rows: Floats
    sure: Masks
    masks: Masks
    fine: Masks
    facts: dict[str, Any]

    @cached_property
    def placing(self) -> Placing:
        given = dict(self.facts["placing"])
        return Placing(**{**given, "mean": tuple(given["mean"]), "std": tuple(given["std"])})

    @property
    def head(self) -> str:
        """The head that a user must name, because the file shows no family; "auto" if it need not be named."""
        return str(self.facts.get("head", "auto")) if "x1" in self.facts["columns"] else "classify"

    def semantics_beside(self, metadata: Mapping[str, str]) -> Semantics:
        """The facts that a user must give beside the head: a classifier without metadata has no family."""
        if self.head != "classify" or metadata:
            return Semantics()
        return Semantics(mean=self.placing.mean, std=self.placing.std)

    def column(self, name: str) -> Floats:
        return np.asarray(self.rows[:, self.facts["columns"].index(name)])

    def of(self, picture: int) -> Floats:
        """The rows of one picture."""
        return np.asarray(self.rows[self.rows[:, 0] == picture])

    def save(self, path: Path) -> None:
        """Write the file; numbers are rounded so that it stays small, coordinates to 1/128 of a pixel,
        key points to 1/64."""
        steps = np.array([_STEPS.get(name, 64) for name in self.facts["columns"]], np.float32)
        np.savez_compressed(
            path,
            rows=np.asfortranarray(np.rint(self.rows * steps) / steps),
            sure=self.sure,
            masks=np.packbits(self.masks),
            fine=np.packbits(self.fine),
            shapes=np.array([self.masks.shape, self.fine.shape]),
            facts=np.array(json.dumps(self.facts)),
        )


def load(path: Path) -> Expected:
    """Read the file of a model's results."""
    with np.load(path) as file:
        masks, fine = (
            np.unpackbits(file[name], count=int(np.prod(shape))).reshape(shape).astype(bool)
            for name, shape in zip(("masks", "fine"), file["shapes"])
        )
        return Expected(np.asarray(file["rows"]), file["sure"], masks, fine, json.loads(str(file["facts"])))


def nothing(count: int = 0, height: int = 0, width: int = 0) -> Masks:
    return np.zeros((count, height, width), bool)


def key_points(points: int, values: int) -> Sequence[str]:
    """The names of the columns of key points."""
    return [f"{name}{number}" for number in range(points) for name in ("kx", "ky", "seen")[:values]]
