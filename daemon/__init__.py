"""The Lookout process: sources, board, lanes, publisher, monitor."""

import gc
import sys
from importlib import import_module

__version__ = "0.1.0"


def _load_quickly() -> None:
    """Load structlog without rich, which it would draw tracebacks with. That and rare collections of garbage, where all
    that is loaded stays, save a sixth of the time to begin, and 4 MB, in each process of a daemon."""
    gc.set_threshold(20_000, 20, 20)
    if "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import_module("structlog")
    finally:
        del sys.modules["rich"]


_load_quickly()
