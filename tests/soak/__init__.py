"""Everything that can go wrong around a daemon, at once and for a while; see `python -m tests.soak --help`."""
