"""Tests of traces: which frames have one, what it says, and what a collector can do to the daemon."""
