"""A detector without a model, for tests and measurements."""
