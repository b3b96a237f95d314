"""Boxes and tracks of exactly the pictures that are recorded, in a file beside each recording."""
