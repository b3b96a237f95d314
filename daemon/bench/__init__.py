"""Measuring Lookout on recordings."""
