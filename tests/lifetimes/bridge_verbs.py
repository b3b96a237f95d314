"""What happens to a bridge, as verbs that begin and end: between the two another one happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from daemon.bridge.messages import Loss
from daemon.bridge.worker import WINDOW
from tests.bridge.publisher import EventSource
from tests.bridge.rig import Rig

End = Callable[[], None]
STAYS, GOES = "stays", "goes"


@dataclass
class World:
    """A bridge with a target that stays, and one that may be removed.

    Attributes:
        restarts: of the bridge.
        lost: events that neither the wire nor the journal had.
    """

    rig: Rig
    source: EventSource
    restarts: int = 0
    lost: int = 0
    _version: count[int] = field(default_factory=lambda: count(1))

    def rows(self, *, with_second: bool = True) -> list[dict[str, Any]]:
        """Targets that differ each time, so that a reload connects them anew."""
        rows: list[dict[str, Any]] = [{"name": STAYS, "stale_s": 3600 + next(self._version)}, {"name": GOES}]
        return rows if with_second else rows[:1]

    def reload(self, *, with_second: bool = True) -> None:
        self.rig.config = self.rig.config_of(self.rows(with_second=with_second))
        assert not self.rig.bridge.reload(self.rig.config).later

    def emit(self, number: int = 3, **fields: Any) -> None:
        self.source.emit(number, **fields)


Verb = Callable[[World], End]


def _nothing() -> None:
    """It is over at once."""


def _away(world: World) -> End:
    """The broker goes, and comes back."""
    receiver = world.rig.receivers[STAYS]
    receiver.away = "nothing answers"
    world.emit()

    def end() -> None:
        receiver.away = None

    return end


def _in_flight(world: World) -> End:
    """The broker confirms nothing, with a window on its way."""
    receiver = world.rig.receivers[STAYS]
    receiver.hangs.set()
    world.emit(WINDOW + 20)
    return receiver.hangs.clear


def _reload(world: World) -> End:
    world.emit()
    world.reload()
    return _nothing


def _remove(world: World) -> End:
    """A target is removed while its spool is not empty, and is there again as a new one."""
    world.rig.receivers[GOES].away = "nothing answers"
    world.emit()
    world.reload(with_second=False)

    def end() -> None:
        world.rig.receivers[GOES].away = None
        world.reload()

    return end


def _restart(world: World) -> End:
    """The bridge is stopped; events come meanwhile."""
    world.emit()
    world.rig.bridge.stop()
    world.emit()
    world.rig.restart()
    world.restarts += 1
    return _nothing


def _daemon(world: World) -> End:
    """The daemon starts again: `index` begins anew."""
    world.emit()
    world.source.restart()
    world.emit()
    return _nothing


def _gap(world: World) -> End:
    """Events do not arrive, until one does."""
    with world.source.losing():
        world.emit(5)
    return lambda: world.emit(1)


def _prune(world: World) -> End:
    """The journal forgets all that it has."""
    world.source.prune(world.source.events[-1].number)
    return _nothing


def _lose(world: World) -> End:
    world.source.lose_for_good(2)
    world.lost += 2
    return lambda: world.emit(1)


def _fill(world: World) -> End:
    """More comes than the spool holds, if nobody takes it."""
    world.emit(120, label="x" * 12_000)
    return _nothing


def _rename(world: World) -> End:
    """A camera gets another name."""
    before = world.source.sources
    world.source.status(before[0], "ended", reason="stopped")
    after = (f"{before[0]}-renamed", *before[1:])
    world.source.sources = after
    world.source.status(after[0], "connecting")
    world.source.status(after[0], "up")
    world.emit()
    return _nothing


VERBS: Mapping[str, Verb] = {
    "broker away": _away,
    "window in flight": _in_flight,
    "reload": _reload,
    "target removed": _remove,
    "bridge restarts": _restart,
    "daemon restarts": _daemon,
    "gap": _gap,
    "journal pruned": _prune,
    "events lost": _lose,
    "spool full": _fill,
    "camera renamed": _rename,
}


def check(world: World) -> None:
    """All that happened was told, in order, or is told as lost; and nothing was told more often than it had to be."""
    rig = world.rig
    world.emit()
    last = world.source.events[-1].number
    receiver = rig.receivers[STAYS]
    rig.wait_until(lambda: last in receiver.numbers)
    rig.wait_until(lambda: not rig.account(STAYS).spooled and not rig.account(GOES).spooled)
    first_times = list(dict.fromkeys(receiver.numbers))
    assert first_times == sorted(first_times)
    missing = {event.number for event in world.source.events} - set(first_times)
    losses = [row.message for row in receiver.records if isinstance(row.message, Loss)]
    unknown = any(loss.count is None for loss in losses)
    told = sum(loss.count or 0 for loss in {loss.id: loss for loss in losses}.values())
    assert unknown or told >= len(missing) + world.lost, (len(missing), world.lost, losses)
    assert not losses or missing or world.lost, losses
    repeats = len(receiver.numbers) - len(first_times)
    assert repeats <= 0 if receiver.takes is None and not rig.account(STAYS).repeated else repeats <= WINDOW * 4
