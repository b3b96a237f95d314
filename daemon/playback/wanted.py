"""The time that an event wants, as the indexes of the stores know it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from starlette.exceptions import HTTPException

from daemon.playback.opened import OpenedStore
from daemon.playback.queries import Times
from daemon.playback.stores import Stores


async def wanted_by(event: str, stores: Stores, source: str, name: str | None) -> Times:
    """From the first moment that some store wants for it to the last, which may be still to come.

    Args:
        name: of the only store to ask; None for all that have the source.

    Raises:
        HTTPException: 404: none knows one. 503: none does, and one cannot say.
    """
    if not event.isprintable():
        raise HTTPException(404, "there is no such event")
    answers = await stores.of_source(source, partial(_claim, source, event), name)
    found = [times for rows in answers.found.values() for times in rows]
    if not found and answers.failed:
        raise HTTPException(503, "; ".join(answers.failed.values()), {"Retry-After": "5"})
    if not found:
        raise HTTPException(
            404, "no time of this event is known: it came just now, nothing was recorded for it, or its video is gone"
        )
    return Times(min(times.begin for times in found), max(times.end for times in found))


def _claim(source: str, event: str, opened: OpenedStore) -> Sequence[Times]:
    found = opened.index.claim(source, event)
    return [Times(found.begin, found.end)] if found else []
