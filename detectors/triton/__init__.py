"""The backend of a model on a Triton server."""
