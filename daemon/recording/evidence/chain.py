"""The SHA-256 chain of a recording whose bytes come one after the other, as they are copied or checked."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from daemon.recording.boxes import FRAGMENT_BYTES, FragmentBox, chained, read_fragment


class Link(NamedTuple):
    """A fragment as it was read.

    Attributes:
        box: None if it is damaged.
        chain: SHA-256 that its bytes give; None if it is not whole.
    """

    box: FragmentBox | None
    chain: bytes | None

    @property
    def is_sound(self) -> bool:
        return self.box is not None and self.box.chain == self.chain


class ChainReader:
    """Takes the bytes of a file in their order.

    Args:
        beginning: bytes before the first fragment.
        fragments: offset and size of each, in their order.
    """

    def __init__(self, beginning: int, fragments: Sequence[tuple[int, int]]) -> None:
        self._places = [(0, beginning), *fragments]
        self._number = self._at = 0
        self._head = bytearray()
        self._hash = hashlib.sha256()
        self._digests: list[bytes] = []
        self._boxes: list[FragmentBox | None] = []

    def add(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self._number < len(self._places):
            offset, size = self._places[self._number]
            if self._at < offset:  # between fragments there is nothing, unless the file is damaged
                view = self._passed(view, offset - self._at)
                continue
            part = view[: offset + size - self._at]
            self._take(part)
            view = self._passed(view, len(part))
            if self._at >= offset + size:
                self._close()

    @property
    def beginning(self) -> bytes | None:
        """The digest of what stands before the first fragment; None if it is not whole."""
        return self._digests[0] if self._digests else None

    @property
    def links(self) -> list[Link]:
        """One for each fragment."""
        missing = len(self._places) - len(self._digests)
        found = [Link(box, digest) for box, digest in zip(self._boxes[1:], self._digests[1:])]
        return found + [Link(None, None)] * min(missing, len(self._places) - 1)

    def _passed(self, view: memoryview, size: int) -> memoryview:
        size = min(size, len(view))
        self._at += size
        return view[size:]

    def _take(self, part: memoryview) -> None:
        if self._number == 0:
            self._hash.update(part)
            return
        missing = FRAGMENT_BYTES - len(self._head)
        if missing > 0:
            self._head += part[:missing]
            part = part[missing:]
            if len(self._head) == FRAGMENT_BYTES:
                self._hash.update(chained(self._head))
        self._hash.update(part)

    def _close(self) -> None:
        self._digests.append(self._hash.digest())
        self._boxes.append(read_fragment(self._head) if self._number else None)
        self._head, self._hash = bytearray(), hashlib.sha256()
        self._number += 1
