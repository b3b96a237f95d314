"""Few at once, in the order they came."""

from __future__ import annotations

import threading
from collections import deque


class Gate:
    """Lets a number of threads in, first come, first served: who leaves hands the place to who has waited longest.

    A semaphore, or a queue of tokens, gives a place to whoever asks first after it came free, which is mostly who has
    just left: with more threads than places some never get one.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._waiting: deque[threading.Lock] = deque()
        self._lock = threading.Lock()

    def enter(self, turn: threading.Lock) -> None:
        """Wait for a place.

        Args:
            turn: the calling thread's own, from `new_turn`.
        """
        with self._lock:
            if self._places:
                self._places -= 1
                return
            self._waiting.append(turn)
        turn.acquire()

    def leave(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._places += 1


def new_turn() -> threading.Lock:
    """What a thread waits on."""
    turn = threading.Lock()
    turn.acquire()
    return turn
