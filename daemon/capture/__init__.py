"""A source's life: connect, read, stamp, retry; in threads or in processes of their own."""
