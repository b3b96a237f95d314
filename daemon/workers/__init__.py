"""Capture processes: sources are read and decoded outside the daemon's own, pictures handed over in shared memory."""
