"""Tiny models by the exporters of other frameworks, and the results of those frameworks; see README.md."""
