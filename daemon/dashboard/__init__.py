"""The page: a process of its own that subscribes to daemons, and shows them to browsers."""
