"""Other inference engines on the same model file: `python -m tests.bench engine --peer`."""
