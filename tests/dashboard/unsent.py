"""What a page reads of answers and messages that is not in them: by a name that nobody sends, it shows nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.sync_api import Page

_SCRIPT: Final = Path(__file__).with_suffix(".js").read_text()
# What may be left out, with where it stands.
_OPTIONAL: Final = re.compile(
    r"(detections|boxes)\[\]\.(attributes|keypoints|mask|model|obb|track_label|velocity)"
    r"|message\.model\.id"
    r"|frames\[\]\.model"
    r"|(drops|dropped|per_minute)\.\w+"  # causes of which there was none
    r"|rules\[\]\.\w+"  # keys of another kind of rule
    r"|rows\[\]\.(cause|claimed|detail)"  # of video, or of a gap
    r"|feed detections \.message\.lastIndex"  # the page's own
)


def watch(page: Page) -> None:
    """Begin with the next document that is opened."""
    page.add_init_script(_SCRIPT)


def visit(page: Page, path: str) -> None:
    """Another page within the same document."""
    page.evaluate("path => import('/static/router.js').then(({ go }) => go(path))", path)


def unsent(page: Page) -> list[str]:
    """What the document has read so far in vain."""
    found: list[str] = page.evaluate("() => window.unsent()")
    return [place for place in found if not _OPTIONAL.search(place)]
