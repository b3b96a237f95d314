"""How many may do the same at once: a viewer, a token with all of its viewers, and all together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request

from daemon.http.access import caller_of
from daemon.http.operation import Parameter

VIEWER: Final = Parameter("X-Lookout-Viewer", {"type": "string"}, "header")
"""The page has one token for all of its people, and says by this header which of them asks."""
_VIEWER = re.compile(r"[\x21-\x7e]{1,64}", re.ASCII)
_AGAIN: Final = {"Retry-After": "5"}


class Turns:
    """The event loop's thread alone uses it.

    Args:
        what: is done, for messages.
        status: of a refusal.
        of_viewer, of_token, of_all: the most at once.
    """

    def __init__(self, what: str, status: int, *, of_viewer: int, of_token: int, of_all: int) -> None:
        self._what, self._status = what, status
        self._of_viewer, self._of_token, self._of_all = of_viewer, of_token, of_all
        self._viewers, self._tokens = Counter[tuple[str, str]](), Counter[str]()

    def take(self, request: Request) -> Callable[[], None]:
        """Returns what ends the turn; a second call does nothing.

        Raises:
            HTTPException: there are as many as may be. 400: the header with the viewer is none.
        """
        token = caller_of(request).name
        viewer = token, _viewer_of(request)
        if self._viewers[viewer] >= self._of_viewer:
            raise self._refusal(f"{self._of_viewer} of yours")
        if self._tokens[token] >= self._of_token:
            raise self._refusal(f"{self._of_token} of this token")
        if self._tokens.total() >= self._of_all:
            raise self._refusal(f"{self._of_all} of all")
        self._viewers[viewer] += 1
        self._tokens[token] += 1
        is_over = False

        def end() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._end(viewer)

        return end

    def _end(self, viewer: tuple[str, str]) -> None:
        self._viewers[viewer] -= 1
        self._tokens[viewer[0]] -= 1
        self._viewers += Counter()  # without those that have none
        self._tokens += Counter()

    def _refusal(self, who: str) -> HTTPException:
        return HTTPException(self._status, f"{self._what}: {who} already, which is the most at once", _AGAIN)


def _viewer_of(request: Request) -> str:
    """The viewer of a token; empty where it has one alone."""
    given = request.headers.getlist("x-lookout-viewer")
    if not given:
        return ""
    if len(given) > 1 or not _VIEWER.fullmatch(given[0]):
        raise HTTPException(400, "X-Lookout-Viewer is to be one word of at most 64 characters")
    return given[0]
