"""What the daemon knows of its processes."""

from __future__ import annotations

import os
import resource

from daemon.probes import ProcessProbe


def test_without_a_descriptor_left_the_last_figures_stand() -> None:
    """The monitor looks into /proc; that it cannot for a while is no reason for the daemon to end."""
    probe = ProcessProbe(lambda: [os.getpid()])
    before = probe.read()
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, most))
    try:
        found = probe.read()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))
    assert found == before
    assert found.rss_bytes > 0
