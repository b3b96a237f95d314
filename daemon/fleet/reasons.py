"""Reasons of the placer, for people: why a source waits, and why it left a member."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daemon.fleet.arrangement import Arrangement
from daemon.fleet.demand import RESOURCES, USABLE, Indices

DISABLED = "enabled: false"
_EPSILON = 1e-9
_MAX_NAMES = 3
_FULL = {name: f"{name} is full" for name in RESOURCES} | {
    "the GPU's decoder sessions": "the GPU's decoder sessions are used up",
    "decoding on the CPU": "the CPU can decode no more",
}
_DECODING = [RESOURCES.index(name) for name in ("the GPU's decoder", "decoding on the CPU")]


def why_not_there(arrangement: Arrangement, row: int, column: int) -> str:
    """Why a source cannot stay on the member where it is wanted."""
    view, member = arrangement.view, arrangement.members[column]
    if member in view.drained:
        return f"{member} is drained"
    if view.members[member].state == "leaving":
        return f"{member} leaves"
    if member in view.refused.get(arrangement.sources[row], ()):
        return f"{member} refused it"
    if not arrangement.has_models[row, column]:
        return f"{member} does not have {_models_of(arrangement, row)}"
    return f"{member} does not have its labels"


def _models_of(arrangement: Arrangement, row: int) -> str:
    look = arrangement.demands.looks[int(arrangement.demands.look[row])]
    if not look:
        return "a single model, and it names none"
    return f"the model{'s' if len(look) > 1 else ''} {', '.join(look)}"


class WaitingReasons:
    """Why sources wait, in one line each. Reasons of equal sources are computed once."""

    def __init__(self, arrangement: Arrangement) -> None:
        self._all = arrangement
        self._known: dict[object, str] = {}

    def of(self, row: int) -> str:
        source, demands = self._all.view.sources[self._all.sources[row]], self._all.demands
        key = (
            tuple(sorted(source.affinity.items())),
            tuple(sorted(self._all.view.refused.get(self._all.sources[row], {}).items())),
            *(
                float(values[row])
                for values in (demands.detected, demands.pixels, demands.area, demands.codec, demands.look)
            ),
            bool(demands.on_cpu[row]),
            bool(demands.on_gpu[row]),
        )
        if key not in self._known:
            self._known[key] = self._reason(row)
        return self._known[key]

    def _reason(self, row: int) -> str:
        view, members = self._all.view, self._all.members
        if not members:
            return "the fleet has no member"
        affinity = tuple(sorted(view.sources[self._all.sources[row]].affinity.items()))
        suitable = [column for column, name in enumerate(members) if self._all.has_labels(name, affinity)]
        if not suitable:
            labels = ", ".join(f"{key}={value}" for key, value in affinity)
            return f"no member has the label{'s' if len(affinity) > 1 else ''} {labels}"
        ready = [column for column in suitable if self._all.is_open[column]]
        if not ready:
            return f"{self._names(suitable)} {'are' if len(suitable) > 1 else 'is'} drained, or not ready"
        ready = [column for column in ready if self._all.has_models[row, column]]
        if not ready:
            return f"no member that may have it has {_models_of(self._all, row)}"
        allowed = np.array([column for column in ready if self._all.allowed[row, column]], np.intp)
        if not len(allowed):
            refused = view.refused[self._all.sources[row]]
            first = members[ready[0]]
            return f"refused by {self._names(ready)}: {refused[first]}"
        return self._no_room(row, allowed)

    def _no_room(self, row: int, columns: Indices) -> str:
        share, _ = self._all.options(row)
        cannot = np.isinf(share[columns][:, _DECODING]).any(axis=1)
        as_asked = f"decode {self._all.demands.codecs[int(self._all.demands.codec[row])]} as its configuration asks"
        if cannot.all():
            return f"no member that may have it can {as_asked}"
        strangers, columns = int(cannot.sum()), columns[~cannot]
        short = self._all.load[columns] + share[columns] > USABLE + _EPSILON
        # A member is counted once, by the resource that is shortest.
        over = np.where(short, self._all.load[columns] + share[columns] - USABLE, -np.inf).argmax(axis=1)
        counts = np.bincount(over, minlength=len(RESOURCES))
        words = [f"{_FULL[RESOURCES[number]]} on {_members(int(counts[number]))}"
                 for number in np.argsort(-counts, kind="stable").tolist() if counts[number]]  # fmt: skip
        if strangers:
            words.append(f"{_members(strangers)} cannot {as_asked}")
        return "no room: " + ", ".join(words)

    def _names(self, columns: Sequence[int]) -> str:
        names = [self._all.members[column] for column in columns]
        more = len(names) - _MAX_NAMES
        return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _members(count: int) -> str:
    return "1 member" if count == 1 else f"{count} members"
