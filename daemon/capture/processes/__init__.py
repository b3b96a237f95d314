"""Sources read and decoded outside the daemon's own process; pictures are handed over in shared memory."""
