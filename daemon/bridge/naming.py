"""Names of topics, subjects and streams."""

from __future__ import annotations


def named(template: str, *, kind: str, source: str, daemon: str) -> str:
    """A template with `{kind}`, `{source}` and `{daemon}` replaced; an empty source is `_`."""
    return template.replace("{kind}", kind).replace("{source}", source or "_").replace("{daemon}", daemon)
