"""Heads: what a model's outputs mean. Pure numpy; the reference for every backend."""
