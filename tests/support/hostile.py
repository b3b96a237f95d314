"""How many peers that mean no good a test sends."""

from __future__ import annotations

import os

COUNT = int(os.environ.get("LOOKOUT_HOSTILE", "1000"))
