"""Capture in processes of their own; pictures are handed over in shared memory. docs/decisions.md says why."""
