"""Measurements for who works on Lookout, in a checkout: `python -m tests.bench`."""
