"""The Lookout process: sources, board, lanes, publisher, monitor."""

__version__ = "0.1.0"
