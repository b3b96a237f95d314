"""Changes while the daemon runs, and the share of the machine that each source gets."""
