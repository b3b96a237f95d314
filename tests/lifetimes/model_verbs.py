"""Verbs of a daemon with two models, `first` and `second`."""

from __future__ import annotations

import itertools

import msgspec

from daemon.config.sources import SourceConfig, SourceTracking
from tests.lifetimes.analysis_verbs import End, held_or_done
from tests.lifetimes.rig import Rig, settle
from tests.lifetimes.verbs import VERBS, Verb

_files, _looks = itertools.count(1), itertools.cycle([["second"], ["second", "first"], ["first"]])


def swap_first(rig: Rig, hold: bool) -> End:
    return _swap(rig, "first", hold)


def swap_second(rig: Rig, hold: bool) -> End:
    return _swap(rig, "second", hold)


def other_models(rig: Rig, hold: bool) -> End:
    """A source gets other models; held while it is made."""
    if hold:
        rig.making.close()
    looks = next(_looks)
    future = rig.edit(lambda rows: [_seen_by(row, looks) if row.id == "lib" else row for row in rows])
    if hold:
        held_or_done(rig.making, future)

    def end() -> None:
        rig.making.open()
        settle(future)

    return end


MODEL_VERBS: dict[str, Verb] = {
    "swap of the first": swap_first,
    "swap of the second": swap_second,
    "other models": other_models,
}
OTHERS: dict[str, Verb] = {name: verb for name, verb in VERBS.items() if name != "model swap"}


def _swap(rig: Rig, model: str, hold: bool) -> End:
    """Held while the model is opened."""
    if hold:
        rig.model.close()
    future = rig.swap(f"{model}-{next(_files)}", model)
    if hold and not future.done():
        held_or_done(rig.model, future)

    def end() -> None:
        rig.model.open()
        settle(future)

    return end


def _seen_by(source: SourceConfig, models: list[str]) -> SourceConfig:
    tracking = SourceTracking(model=models[0]) if source.tracking is not None or source.rules else None
    return msgspec.structs.replace(source, model=models, tracking=tracking)
