"""Runs sources: connect, read, stamp, retry; in threads or in capture processes."""
