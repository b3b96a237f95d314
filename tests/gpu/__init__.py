"""Tests that need a GPU, run by hand; `make test` does not run them."""
