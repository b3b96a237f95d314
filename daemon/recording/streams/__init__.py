"""Streams that are recorded beside those that are analysed: a process that connects, and decodes nothing."""
