"""One world, or one view, for the tests of a file that use a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.dashboard.view import View
    from tests.dashboard.world import World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, folder_of_all: Path) -> Iterator[World]:
    from tests.dashboard.world import started  # needs Playwright

    with started(tmp_path_factory.mktemp("page"), folder_of_all) as found:
        yield found


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[View]:
    from tests.dashboard.view import viewing

    with viewing(tmp_path_factory.mktemp("view")) as found:
        yield found
