"""Numba's compiler, with a cache for each version of the sources. This is the only module that imports numba."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

from daemon import geometry
from detectors.port import cache_folder

_VARIABLE = "NUMBA_CACHE_DIR"


def versioned(folder: Path) -> Path:
    """The folder for code of these sources. Numba looks for changes in a function's own file alone, but compiles in
    constants of others."""
    version = sha256()
    here = Path(__file__).parent
    others = Path(geometry.__file__), here.parent / "publish" / "compiled_text.py"
    for file in (*sorted(here.glob("*.py")), *others):
        version.update(file.read_bytes())
    name = version.hexdigest()[:12]
    return folder if folder.name == name else folder / name


def _make_compilers() -> tuple[Any, Any]:
    os.environ[_VARIABLE] = str(versioned(Path(os.environ.get(_VARIABLE) or cache_folder() / "numba")))
    import numba

    numba.config.reload_config()  # somebody may have imported it before
    # The lock is held: a call takes 0.1 ms for a batch, and to get the lock back can take longer.
    options = {"cache": True, "error_model": "numpy"}
    return numba.njit(**options), numba.njit(**options, inline="always")


compiled, inlined = _make_compilers()
"""Decorators. The second is for small loops that are called for each track: numba passes an array as nine arguments or
more, which can take longer than the loop."""
