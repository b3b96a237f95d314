"""Monitors the daemon: metrics, probes of the machine, the file of frames."""
