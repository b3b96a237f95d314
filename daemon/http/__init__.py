"""The HTTP interface: health, metrics for Prometheus, sources at run time. Off unless it is asked for."""
