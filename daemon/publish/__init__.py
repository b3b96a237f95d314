"""Results leave the daemon: messages, the ZeroMQ socket, its subscribers and their keys."""
