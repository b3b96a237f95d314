"""Makes config.yaml and docs/configuration.md from the configuration's structs: `make config`.

An explanation is a text under its field. A key without one is an error.
"""
