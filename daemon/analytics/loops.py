"""The inner loops of analytics, compiled where numba is installed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import structlog

from daemon.analytics import numpy_step
from daemon.analytics.broad_phase import Search
from daemon.analytics.track_step import Step
from detectors.port import cache_folder

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Loops:
    """Attributes:
    step: of the tracker.
    search: of the rules' broad phase; None where each rule looks for itself.
    """

    step: Step
    search: Search | None = None


PYTHON = Loops(numpy_step.step)


def fastest_loops(cache: Path | None) -> Loops:
    """The compiled loops, ready to run; `PYTHON` where numba is absent or does not work. The log says which.

    The first time on a machine it takes some ten seconds, and later half a second.

    Args:
        cache: where the compiled code is kept, beside engines; None for the usual folder.
    """
    began = monotonic()
    _set_cache(cache)
    try:
        from daemon.analytics import compiled_broad_phase, compiled_step

        compiled_step.compile_now()
        compiled_broad_phase.compile_now()
    except ImportError as error:
        log.info(
            "tracking runs in numpy; with numba (pip install 'lookoutd[fast]') it costs a third", reason=str(error)
        )
        return PYTHON
    except Exception as error:  # noqa: BLE001 - numba and LLVM raise many kinds
        reason = str(error).strip().partition("\n")[0]
        log.warning("numba cannot compile the tracker, so it runs in numpy", reason=reason)
        return PYTHON
    log.info("tracking is compiled", seconds=round(monotonic() - began, 1))
    return Loops(compiled_step.step, compiled_broad_phase.search)


def compiled_search(cache: Path | None) -> Search | None:
    """The search alone, for a process that has no tracker; None where `fastest_loops` has none."""
    _set_cache(cache)
    try:
        from daemon.analytics import compiled_broad_phase

        compiled_broad_phase.compile_now()
    except Exception as error:  # noqa: BLE001 - as above, where the log says so
        log.debug("rules are not compiled", reason=str(error))
        return None
    search: Search = compiled_broad_phase.search
    return search


def _set_cache(cache: Path | None) -> None:
    os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_folder(cache) / "numba"))
