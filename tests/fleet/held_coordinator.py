"""A coordinator in memory that a test can hold or refuse, call by call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.fleet.memory_coordinator import MemoryCoordinator, MemoryEngine

Hooks = Mapping[str, Callable[[], None]]
"""By the name of a call of the coordinator, or of a membership; called before it."""


class HeldCoordinator:
    def __init__(self, engine: MemoryEngine, hooks: Hooks) -> None:
        self._inner, self._hooks = MemoryCoordinator(engine), hooks

    def __getattr__(self, name: str) -> Any:
        return _held(getattr(self._inner, name), name, self._hooks)


class _Held:
    def __init__(self, inner: Any, hooks: Hooks) -> None:
        self._inner, self._hooks = inner, hooks

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return _held(found, name, self._hooks) if callable(found) else found


def held(inner: Any, hooks: Hooks) -> Any:
    """A membership, or what renews one, with hooks before its calls."""
    return _Held(inner, hooks)


def _held(call: Callable[..., Any], name: str, hooks: Hooks) -> Callable[..., Any]:
    def call_held(*args: Any, **keys: Any) -> Any:
        if name in hooks:
            hooks[name]()
        result = call(*args, **keys)
        return held(result, hooks) if name == "join" else result

    return call_held
