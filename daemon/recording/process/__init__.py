"""The process that writes into one store, and its life in the daemon."""
