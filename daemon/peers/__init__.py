"""Daemons as others reach them: their addresses, and requests to their HTTP APIs."""
