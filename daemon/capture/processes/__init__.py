"""Capture in processes of their own; pictures are handed over in shared memory."""
