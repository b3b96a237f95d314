"""Arrays side by side, with the interpreter's lock held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Scalar = TypeVar("Scalar", bound=np.generic)


def joined(parts: Sequence[npt.NDArray[Scalar]]) -> npt.NDArray[Scalar]:
    """Rows of one type and width, as `np.concatenate` joins them.

    numpy gives the lock up for each part, however small, and a busy thread waits to get it back. This takes a third of
    the time, too. At least one part.
    """
    first: npt.NDArray[Any] = parts[0]
    return np.frombuffer(joined_bytes(parts), first.dtype).reshape(-1, *first.shape[1:])


def joined_bytes(parts: Sequence[npt.NDArray[Any]]) -> bytearray:
    """The memory of `joined`."""
    try:
        return bytearray().join(parts)  # type: ignore[arg-type]
    except (BufferError, TypeError):  # a part is not in one piece, row by row
        return bytearray().join([part.tobytes() for part in parts])
