"""Prints every GPU figure, and fails if a card lacks a required one: `python -m tests.gpu.probes`."""

from __future__ import annotations

import json
import sys
from time import sleep

import msgspec

from daemon.monitoring.probes import open_gpu_probe


def main() -> int:
    probe = open_gpu_probe()
    first = probe.read()
    sleep(2)  # for the card's own counters
    second = probe.read()
    probe.close()
    if first is None or second is None:
        sys.stderr.write(f"no GPU: {probe.reason}\n")
        return 1
    for before, after in zip(first, second):
        sys.stdout.write(json.dumps(msgspec.to_builtins(after), indent=2) + "\n")
        assert after.memory_used_bytes is not None
        assert after.utilisation is not None
        assert after.decoder_utilisation is not None
        assert after.power_w is not None
        assert before.energy_j is not None
        assert after.energy_j is not None
        watts = (after.energy_j - before.energy_j) / 2
        sys.stdout.write(f"mean power by the energy counter: {watts:.1f} W\n")
        assert abs(watts - after.power_w) < 0.3 * after.power_w
    return 0


if __name__ == "__main__":
    sys.exit(main())
