"""Windows and files for a person."""
