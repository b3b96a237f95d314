"""lookout.yaml(5): every key of the configuration, with its values, its default and its explanation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date

from daemon.config.root import Config
from tests.manual.roff import example, head, heading, item, paragraphs, prose
from tests.reference.keys import Key, as_yaml, keys_of, own_keys, shared_keys, summary, tag_of
from tests.reference.page import allowed

_DESCRIPTION = """\
A configuration is one file in YAML. Unknown keys are refused. `${NAME}` is replaced from the environment in URLs and
secrets, and nowhere else; `$${NAME}` is that text itself. Relative paths are relative to the file. A key without a
default must be there.

`lookout init` writes a short one for your cameras, and `lookout check -c FILE` tries it.
"""
_EXAMPLE = """\
model:
  path: models/demo.onnx
  confidence: 0.4
sources:
  - id: door
    type: av
    url: rtsp://viewer:${DOOR}@192.0.2.10/stream1
    tracking: true
"""


def config_page(day: date) -> str:
    """The text of the page."""
    parts = [
        head("lookout.yaml", 5, day),
        heading("NAME"),
        r"lookout.yaml \- configuration of lookout(1)",
        heading("DESCRIPTION"),
        *paragraphs(_DESCRIPTION),
        heading("EXAMPLE"),
        example(_EXAMPLE.splitlines()),
        heading("KEYS AT THE TOP"),
        *map(_key, keys_of(Config)),
    ]
    for key in keys_of(Config):
        if key.structs:
            parts += [heading(key.name.upper()), *_mapping(key, key.name)]
    return "\n".join([*parts, heading("SEE ALSO"), ".BR lookout (1)"]) + "\n"


def _mapping(key: Key, path: str) -> Iterator[str]:
    """The keys of a mapping, or of each item of a list of mappings, and then those within."""
    shared = shared_keys(key.structs)
    yield from map(_key, shared)
    yield from _within(shared, path)
    for struct in key.structs:
        own = own_keys(struct, shared)
        if shared:
            yield heading(f"{path}, type: {tag_of(struct)}", 2)
            yield prose(f"{summary(struct)}." if own else f"{summary(struct)}. It has no further keys.")
        yield from map(_key, own)
        yield from _within(own, path)


def _within(keys: Sequence[Key], path: str) -> Iterator[str]:
    for key in keys:
        if key.structs:
            yield heading(f"{path}.{key.name}", 2)
            yield from _mapping(key, f"{path}.{key.name}")


def _key(key: Key) -> str:
    default = "" if key.is_required or key.is_section else f" Default: `{as_yaml(key.default)}`."
    explained = key.explanation[:1].upper() + key.explanation[1:]
    return item(key.name, f"{explained}. Value: {allowed(key.type)}.{default}")
