"""The subscriber in an event loop: it wakes up when a message comes, and leaves others their turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from lookout.aio import AsyncSubscriber
from lookout.messages import Detections, Message
from lookout.testing import Publisher
from tests.support.daemon import PATIENCE_S


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher(timeout_s=PATIENCE_S) as found:
        yield found


def _seq(message: Message | None) -> int:
    assert isinstance(message, Detections)
    return message.seq


def test_messages_are_iterated_over(publisher: Publisher) -> None:
    """Those that are here, and those that come while nobody but the loop is awake."""

    async def collect() -> list[int]:
        found = list[int]()
        async with AsyncSubscriber(publisher.endpoint) as subscriber:
            sending = asyncio.get_running_loop().run_in_executor(None, _send, publisher, 3)
            async for message in subscriber:
                found.append(_seq(message))
                if len(found) == 3:
                    sending = asyncio.get_running_loop().run_in_executor(None, _send, publisher, 2)
                if len(found) == 5:
                    await sending
                    return found
        raise AssertionError("it ended")

    assert asyncio.run(collect()) == [0, 1, 2, 3, 4]


def _send(publisher: Publisher, count: int) -> None:
    for _ in range(count):
        publisher.source("door").detections()


def test_several_daemons_are_heard() -> None:
    async def collect(endpoints: list[str]) -> set[str]:
        found = set[str]()
        async with AsyncSubscriber(endpoints) as subscriber:
            loop = asyncio.get_running_loop()
            await asyncio.gather(*(loop.run_in_executor(None, _send, row, 2) for row in publishers))
            while len(found) < 2:
                message = await subscriber.arrive(PATIENCE_S)
                assert isinstance(message, Detections)
                found.add(f"{message.source} {message.seq}")
        return found

    with Publisher(timeout_s=PATIENCE_S) as one, Publisher(timeout_s=PATIENCE_S) as two:
        publishers = [one, two]
        assert asyncio.run(collect([one.endpoint, two.endpoint])) == {"door 0", "door 1"}


def test_others_get_their_turn_however_many_messages_wait(publisher: Publisher) -> None:
    async def race() -> list[str]:
        order = list[str]()

        async def other() -> None:
            for _ in range(3):
                order.append("other")
                await asyncio.sleep(0)

        async with AsyncSubscriber(publisher.endpoint) as subscriber:
            await asyncio.get_running_loop().run_in_executor(None, _send, publisher, 20)
            await subscriber.arrive(PATIENCE_S)  # by now they are on their way here
            task = asyncio.create_task(other())
            for _ in range(19):
                await subscriber.arrive(PATIENCE_S)
                order.append("message")
            await task
        return order

    order = asyncio.run(race())
    assert order.index("other") == 0
    assert order[:6].count("other") == 3


def test_a_wait_that_is_cancelled_loses_nothing(publisher: Publisher) -> None:
    async def interrupted() -> int:
        async with AsyncSubscriber(publisher.endpoint) as subscriber:
            waiting = asyncio.create_task(subscriber.arrive(PATIENCE_S))
            await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await asyncio.get_running_loop().run_in_executor(None, _send, publisher, 1)
            return _seq(await subscriber.arrive(PATIENCE_S))

    assert asyncio.run(interrupted()) == 0


def test_a_wait_has_an_end_and_what_is_closed_can_be_closed_again(publisher: Publisher) -> None:
    async def late() -> Message | None:
        async with AsyncSubscriber(publisher.endpoint) as subscriber:
            found = await subscriber.arrive(0.01)
            subscriber.close()
        return found

    assert asyncio.run(late()) is None


def test_a_readable_socket_does_not_keep_a_busy_loop_awake(publisher: Publisher) -> None:
    """While a task waits for something else, the loop sleeps though messages lie there."""

    async def turns_while_messages_wait() -> int:
        loop, done = asyncio.get_running_loop(), threading.Event()
        async with AsyncSubscriber(publisher.endpoint) as subscriber:
            assert await subscriber.arrive(0) is None
            await loop.run_in_executor(None, _send, publisher, 5)
            assert _seq(await subscriber.arrive(PATIENCE_S)) == 0
            turns = 0
            select = loop._selector.select  # type: ignore[attr-defined]

            def counted(timeout: float | None) -> object:
                nonlocal turns
                turns += 1
                return select(timeout)

            loop._selector.select = counted  # type: ignore[attr-defined]
            loop.call_later(0.1, done.set)
            await loop.run_in_executor(None, done.wait, PATIENCE_S)
        return turns

    assert asyncio.run(turns_while_messages_wait()) < 20
