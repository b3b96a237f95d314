"""The container image, built and tried; see `python -m tests.image --help`."""
