"""Names of topics, subjects and streams."""

from __future__ import annotations


def named(template: str, *, kind: str, source: str, daemon: str) -> str:
    """A template with `{kind}`, `{source}` and `{daemon}` replaced; an empty source or daemon is `_`.

    A loss of records of several daemons is of none.
    """
    return template.replace("{kind}", kind).replace("{source}", source or "_").replace("{daemon}", daemon or "_")
