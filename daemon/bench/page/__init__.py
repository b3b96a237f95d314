"""A benchmark's file as something to read: Markdown, and one HTML page that needs nothing else."""
