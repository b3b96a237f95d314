"""The subscriber for asyncio.

async with AsyncSubscriber("tcp://127.0.0.1:5556") as subscriber:
    async for message in subscriber:
        print(message.source, message.seq)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import TypeVar

from lookout.client import Subscriber
from lookout.messages import Message

_LOOK_S = 0.5  # at members of a fleet that are gone
AsyncSubscriberT = TypeVar("AsyncSubscriberT", bound="AsyncSubscriber")


class AsyncSubscriber(Subscriber):
    """A `Subscriber`, with the same arguments, for one task of an event loop that watches descriptors.

    On Windows that is `asyncio.SelectorEventLoop`. `receive` blocks the loop: use `arrive`, or iterate.
    """

    async def __aenter__(self: AsyncSubscriberT) -> AsyncSubscriberT:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aiter__(self) -> AsyncIterator[Message]:
        while True:
            message = await self.arrive(_LOOK_S)
            if message is not None:
                yield message

    async def arrive(self, timeout_s: float) -> Message | None:
        """The next message, or None when the time is over. One that is cancelled loses no message.

        Raises:
            ValueError: what came is not of the wire's version 1.
        """
        until = monotonic() + timeout_s
        await asyncio.sleep(0)  # others get their turn, however fast messages come
        while (message := self.receive(0)) is None:
            left = until - monotonic()
            if left <= 0:
                return None
            await self._readable(min(left, _LOOK_S))
        return message

    async def _readable(self, timeout_s: float) -> None:
        """Until something may have come. Descriptors are watched only here: while a task does something else, one that
        is readable would keep the loop awake."""
        loop, came, watched = asyncio.get_running_loop(), asyncio.Event(), self.descriptors
        for fd in watched:
            loop.add_reader(fd, came.set)
        try:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(came.wait(), timeout_s)
        finally:
            for fd in watched:
                loop.remove_reader(fd)
