"""Texts with placeholders: `{label} at {source}`. Each is replaced once, by its name, and nothing else is looked at."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

TEXT_FIELDS = ("label", "source", "rule", "event", "time", "daemon", "reason")
CLICK_FIELDS = ("source", "id", "at", "daemon")
_BRACED = re.compile(r"\{([^{}]*)\}")


def replaced(template: str, values: Mapping[str, str], written: Callable[[str], str] = str) -> str:
    """A template with the values of its placeholders; what stands in a value is not replaced.

    Args:
        written: of each value.
    """
    return _BRACED.sub(lambda match: written(values.get(match[1], "")), template)


def template_problem(key: str, template: str, fields: Collection[str]) -> str | None:
    """The mistake in a template; None without one."""
    for name in _BRACED.findall(template):
        if name not in fields:
            return f"{key}: {{{name}}} is not known: there are {', '.join(f'{{{field}}}' for field in fields)}"
    if set(_BRACED.sub("", template)) & set("{}"):
        return f"{key}: a brace without its other one"
    return None
