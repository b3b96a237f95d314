"""A process that keeps a lease: `python -m tests.fleet.keeping PORT FLEET MEMBER TTL`. It ends when its input ends."""

from __future__ import annotations

import select
import sys

from daemon.clock import SystemClock
from daemon.etcd.settings import Endpoint, EtcdSettings
from daemon.fleet.etcd_coordinator import EtcdCoordinator
from daemon.fleet.kept_lease import KeptLease
from tests.fleet.test_coordinator_contract import RECORD


def main(port: int, fleet: str, member: str, ttl_s: float) -> None:
    coordinator = EtcdCoordinator(EtcdSettings((Endpoint("127.0.0.1", port),)), fleet)
    membership = coordinator.join(member, RECORD, ttl_s)
    lease = KeptLease(membership.renewal, ttl_s, SystemClock())
    lease.start()
    said = False
    while not select.select([sys.stdin], [], [], 0.05)[0]:
        lease.beat()
        if lease.valid_until and not said:
            said = True
            sys.stdout.write(f"{lease.pid}\n")
            sys.stdout.flush()
    lease.stop()
    membership.leave()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4]))
