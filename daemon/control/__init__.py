"""Controls the running daemon: changes of its configuration, and each source's share of the machine.

docs/decisions.md says why.
"""
