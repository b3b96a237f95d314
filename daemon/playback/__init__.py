"""The API of recordings: a process of its own, which reads all stores and writes locks alone."""
