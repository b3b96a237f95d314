"""All stores, each with its threads; a question to all has as many answers as stores can give."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from starlette.exceptions import HTTPException

from daemon.clock import Clock
from daemon.playback.opened import OpenedStore, PlayPlace
from daemon.playback.workers import PATIENCE_S, StoreWorkers

T = TypeVar("T")


@dataclass(frozen=True)
class Answers(Generic[T]):
    """Of stores, by name, in the order of the configuration.

    Attributes:
        failed: why a store gave none.
    """

    found: dict[str, T]
    failed: dict[str, str]


class Stores:
    """The event loop's thread alone uses it."""

    def __init__(self, places: Sequence[PlayPlace], clock: Clock, patience_s: float = PATIENCE_S) -> None:
        self._stores = {place.name: StoreWorkers(place, clock, patience_s) for place in places}

    def store(self, name: str) -> StoreWorkers:
        """
        Raises:
            HTTPException: 404.
        """
        if name not in self._stores:
            raise HTTPException(404, f"there is no such store: there are {', '.join(self._stores)}")
        return self._stores[name]

    async def tried(self, work: Callable[[OpenedStore], T | None], name: str | None = None) -> Answers[T]:
        """Ask all stores at the same time, or one. Those that answer None are left out.

        Raises:
            HTTPException: 404: there is no such store; or what `work` raises.
        """
        asked = list(self._stores.values()) if name is None else [self.store(name)]
        rows = await asyncio.gather(*(store.ask(work) for store in asked), return_exceptions=True)
        found: dict[str, T] = {}
        failed: dict[str, str] = {}
        for store, row in zip(asked, rows):
            if isinstance(row, HTTPException) and row.status_code in (409, 503):
                failed[store.name] = row.detail
            elif isinstance(row, BaseException):
                raise row
            elif row is not None:
                found[store.name] = row
        return Answers(found, failed)

    async def all(self, work: Callable[[OpenedStore], T | None], name: str | None = None) -> Answers[T]:
        """`tried`, with at least one store that could be asked.

        Raises:
            HTTPException: 503: none can; and as `tried`.
        """
        answers = await self.tried(work, name)
        if answers.failed and not answers.found:
            raise HTTPException(503, "; ".join(answers.failed.values()), {"Retry-After": "5"})
        return answers

    async def first(self, work: Callable[[OpenedStore], T | None], name: str | None = None) -> tuple[StoreWorkers, T]:
        """The first answer: no store waits for another.

        Raises:
            HTTPException: 404: none has it. 503, 409: a store that might have it cannot say.
        """
        asked = list(self._stores.values()) if name is None else [self.store(name)]
        waiting = {asyncio.ensure_future(store.ask(work)): store for store in asked}
        failure = HTTPException(404, "there is nothing of this id: it was deleted, or never was")
        try:
            while waiting:
                for task in (await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED))[0]:
                    store = waiting.pop(task)
                    try:
                        found = task.result()
                    except HTTPException as error:
                        failure = error
                        continue
                    if found is not None:
                        return store, found
        finally:
            for task in waiting:
                task.cancel()
        raise failure

    async def of_source(self, source: str, work: Callable[[OpenedStore], T], name: str | None = None) -> Answers[T]:
        """Ask the stores that have something of a source.

        Raises:
            HTTPException: 404: none has; and as `all`.
        """
        answers: Answers[T] = await self.all(lambda opened: work(opened) if opened.knows(source) else None, name)
        if not answers.found:
            raise HTTPException(404, "nothing was recorded of a source of this name")
        return answers
