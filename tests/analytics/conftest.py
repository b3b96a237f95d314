"""Rules, with and without the compiled broad phase."""

from __future__ import annotations

import pytest

from tests.analytics.feed import Feed, search_of


@pytest.fixture(params=["python", "compiled"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """All feeds of the test use them."""
    name = str(request.param)
    search = search_of(name)
    monkeypatch.setattr(Feed, "search", None if search is None else staticmethod(search))
    return name
