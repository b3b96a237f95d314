"""A detector without a model, for tests and for measuring everything but the model."""
