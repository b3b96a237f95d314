"""Where a recording is not as its manifest says, by its chain: the seconds that were changed or are gone."""

from __future__ import annotations

from typing import NamedTuple

from daemon.recording.evidence.chain import ChainReader, Link
from daemon.recording.evidence.manifest import ChainedVideo, ChainRow


class Damage(NamedTuple):
    """Attributes:
    begin, end: UTC ns; None of what is no video.
    """

    begin: int | None
    end: int | None
    detail: str


def damages(video: ChainedVideo, chain: ChainReader, size: int) -> list[Damage]:
    """Those of a recording; empty if its chain is that of the manifest.

    Args:
        chain: of the bytes that are there.
        size: how many they are.
    """
    found: list[Damage] = []
    digest = chain.beginning
    if digest is None or digest.hex() != video.begun_with:
        found.append(Damage(video.begin, video.end, "its beginning, which describes the video, is not as it was"))
    for row, link in zip(video.fragments, chain.links):
        detail = _detail(row, link, size)
        if detail is None:
            continue
        last = found[-1] if found else None
        if last is not None and last.detail == detail and last.end == row.begin:
            found[-1] = last._replace(end=row.end)
        else:
            found.append(Damage(row.begin, row.end, detail))
    last_chain = video.fragments[-1].chain if video.fragments else video.begun_with
    if not found and last_chain and last_chain != video.chain:
        found.append(Damage(video.begin, video.end, "its fragments are not those that its end tells of"))
    return found


def _detail(row: ChainRow, link: Link, size: int) -> str | None:
    if row.offset + row.size > size:
        return "the video of this time is gone" if row.offset >= size else "the video of this time is cut off"
    if link.box is None or link.chain is None or link.chain.hex() != row.chain or not link.is_sound:
        return "the video of this time is not as it was"
    return None
