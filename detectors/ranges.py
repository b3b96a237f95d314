"""Named ranges of work for a profiler such as Nsight Systems, through NVTX. They are off unless LOOKOUT_NVTX is 1.

A range is of the host: the GPU's work is enqueued within it, and may run later.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from detectors.port import DetectorError

VARIABLE = "LOOKOUT_NVTX"
_NOTHING: AbstractContextManager[object] = nullcontext()


class Ranges(Protocol):
    """Makes ranges. Ranges are made once and entered often."""

    def named(self, name: str) -> AbstractContextManager[object]:
        """A range to enter as often as wanted, by any thread. It ends in the thread in which it begins."""
        ...


class NoRanges:
    """Implements `Ranges` without effect."""

    def named(self, name: str) -> AbstractContextManager[object]:  # noqa: ARG002
        return _NOTHING


class Domain(Protocol):
    """The part of `nvtx.Domain` that is used. Each thread has its own stack of ranges."""

    def get_event_attributes(self, message: str) -> Any: ...
    def push_range(self, attributes: Any) -> object: ...
    def pop_range(self) -> object: ...


class NvtxRanges:
    """Implements `Ranges` with NVTX."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain

    def named(self, name: str) -> AbstractContextManager[object]:
        return _Range(self._domain, self._domain.get_event_attributes(message=name))


class _Range:
    def __init__(self, domain: Domain, attributes: Any) -> None:
        self._domain, self._attributes = domain, attributes

    def __enter__(self) -> None:
        self._domain.push_range(self._attributes)

    def __exit__(self, *_: object) -> None:
        self._domain.pop_range()


def wanted_ranges() -> Ranges:
    """The ranges that LOOKOUT_NVTX asks for; without it, ranges without effect.

    Raises:
        DetectorError: the variable has another value than 0 or 1, or nvtx is not installed.
    """
    value = os.environ.get(VARIABLE, "")
    if value in ("", "0"):
        return NoRanges()
    if value != "1":
        raise DetectorError(f"{VARIABLE} is {value!r}: set 1 for ranges of a profiler, or 0")
    try:
        from nvtx import get_domain
    except ImportError as error:
        raise DetectorError(
            f"{VARIABLE} is 1, but nvtx does not load ({error}): pip install 'lookoutd[nvtx]'"
        ) from error
    return NvtxRanges(get_domain("lookout"))
