"""Waits for a change of the configuration without holding up the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from starlette.exceptions import HTTPException

from daemon.config.root import Config
from daemon.control.changes import Changes, PersistSources
from daemon.control.reload import Change
from daemon.errors import StoppingError

_TIMEOUT_S = 60.0  # a model may be built; sources take seconds


async def submit(
    changes: Changes,
    read: Callable[[Config], Config],
    *,
    reloads: bool = False,
    persist: PersistSources | None = None,
    dry_run: bool = False,
) -> Change:
    """The change when it is done; see `Changes.submit`.

    Raises:
        HTTPException: 503 or 504: the daemon is stopping, or it takes too long.
        LookoutError, DetectorError: it is refused.
    """
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def notify(_: object) -> None:
        with suppress(RuntimeError):  # the server has stopped
            loop.call_soon_threadsafe(done.set)

    future = changes.submit(read, reloads=reloads, persist=persist, dry_run=dry_run)
    future.add_done_callback(notify)
    try:
        await asyncio.wait_for(done.wait(), _TIMEOUT_S)
        return future.result()
    except asyncio.TimeoutError as error:
        raise HTTPException(504, "it takes longer than a minute, and goes on") from error
    except StoppingError as error:
        raise HTTPException(503, str(error)) from error
