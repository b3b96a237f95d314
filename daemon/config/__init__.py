"""The configuration: typed, unknown keys refused, every error with the path of its key.

A text under a field explains its key. `make config` makes config.yaml and docs/configuration.md from them.
"""
