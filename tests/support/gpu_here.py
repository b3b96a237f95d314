"""Whether this machine runs engines: tests of what is said without a GPU are skipped there."""

from detectors.factory import GPU_BACKENDS, availability

GPU_HERE = any(row.available for row in availability() if row.backend in GPU_BACKENDS)
