"""The causes for which a captured frame is dropped, and counted.

A new one is a field of `lookout.messages.Dropped`, with its meaning. The code that drops a frame names the field.
"""

from __future__ import annotations

from typing import Literal

from lookout.messages import Dropped

CAUSES: tuple[str, ...] = Dropped.__struct_fields__
GiveUp = Literal["shutdown", "removed"]
"""The cause for a frame that waits for room and is given up."""
