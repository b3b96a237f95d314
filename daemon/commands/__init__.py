"""The commands of the terminal, beside the daemon itself."""
