"""Several daemons share sources: each source has exactly one owner. docs/fleet.md has the promises.

docs/decisions.md says why.
"""
