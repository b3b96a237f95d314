"""The daemon watches itself: metrics, probes of the machine, files of measurements."""
