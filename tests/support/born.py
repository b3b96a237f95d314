"""What a process does that tests have forked from a template: it evaluates what it is told to, and tells the result."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

_KNOWN: dict[str, Any] = {"os": os, "signal": signal, "sys": sys, "threading": threading}


def main(order: str, told: int) -> int:
    """The order is an expression; its value is the exit code if it is a number."""
    value = eval(order, {**_KNOWN})  # noqa: S307 - from a test
    os.write(told, json.dumps(value).encode())
    os.close(told)
    return value if isinstance(value, int) else 0
