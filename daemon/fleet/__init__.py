"""Several daemons share sources: each source has exactly one owner. docs/fleet.md explains it."""
