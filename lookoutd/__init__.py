"""The `lookout` command."""
