"""Two things at once: every pair of the daemon's verbs, and random histories of them. `python -m tests.lifetimes`."""
