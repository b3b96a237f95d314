"""Results that are there already: of these settings and this recording, or one clear line."""

from __future__ import annotations

from typing import Any

from daemon.batch.clips import Clip
from daemon.batch.folder import ResultFolder
from daemon.batch.settings import Recipe
from daemon.errors import LookoutError

_HINT = "name another folder with --out, or remove it"


def has_result(folder: ResultFolder, recipe: Recipe, clip: Clip) -> bool:
    """Whether a clip has a result.

    Raises:
        LookoutError: the result is of other settings, or of another recording, or is no result.
    """
    header = folder.header_of(clip)
    if header is None:
        return False
    path = folder.path_of(clip)
    if header.size != clip.size:
        raise LookoutError(f"{path} is the result of another recording ({header.size} bytes): {_HINT}")
    if header.settings != recipe.settings:
        raise LookoutError(f"{path} has other settings ({_difference(header.settings, recipe.settings)}): {_HINT}")
    return True


def _difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    """The keys that differ."""
    before, after = _by_section(one), _by_section(other)
    keys = {(section, key) for settings in (before, after) for section in settings for key in settings[section]}
    differing = [
        f"{section}.{key}"
        for section, key in sorted(keys)
        if before.get(section, {}).get(key) != after.get(section, {}).get(key)
    ]
    return ", ".join(differing)


def _by_section(settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The keys of each section; each of several models is one."""
    models = {f"models.{name}": row for name, row in settings.get("models", {}).items()}
    return {**{name: row for name, row in settings.items() if name != "models"}, **models}
