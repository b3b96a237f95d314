"""Other inference engines on the same model file: `lookout bench part engine --peer`."""
