"""The documents as a site with search: `make docs` writes it to build/docs, and a warning is an error.

Documents at the root of the repository stay there, where everybody looks for them. `PAGES` names the pages that show
them.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "start": "README.md",
    "contributing": "CONTRIBUTING.md",
    "changelog": "CHANGELOG.md",
    "security": "SECURITY.md",
    "third-party": "THIRD_PARTY.md",
    "demo-model": "models/README.md",
}

project = html_title = "Lookout"
html_theme = "furo"
html_show_copyright = html_show_sphinx = html_copy_source = html_use_index = False
extensions = ["myst_parser"]
highlight_language = "text"
myst_heading_anchors = 4
linkcheck_ignore = [r"https?://(localhost|127\.0\.0\.1|192\.0\.2\.\d+)"]  # examples, where nobody answers
linkcheck_timeout = 20

_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def _links_moved(text: str, folder: str, to: str) -> str:
    """The text of a document with the links that it must have in another folder, where documents have pages.

    Args:
        folder: of the document, relative to the root.
        to: where its text is shown.
    """
    shown = {document: f"docs/{page}.md" for page, document in PAGES.items()}

    def moved(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[1]))
        return posixpath.relpath(shown.get(target, target), to)

    return "".join(part if part.startswith("```") else _LINK.sub(moved, part) for part in _FENCE.split(text))


def _on_source_read(app: Any, page: str, source: list[str]) -> None:
    document = PAGES.get(page, f"docs/{page}.md")
    if page in PAGES:
        app.env.note_dependency(str(ROOT / document))
        source[0] = (ROOT / document).read_text(encoding="utf-8")
    source[0] = _links_moved(source[0], posixpath.dirname(document), posixpath.dirname(f"docs/{page}"))


def setup(app: Any) -> dict[str, bool]:
    """Sphinx calls it."""
    app.connect("source-read", _on_source_read)
    return {"parallel_read_safe": True}
