"""Rules that are asked of the past: those that run live, over the boxes beside recordings."""
