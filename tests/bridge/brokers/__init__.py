"""The brokers of the contract of targets, a file for each kind."""
