"""A planted defect: members believe in their lease for half a minute more. A daemon's start imports it."""

import daemon.fleet.lease

daemon.fleet.lease.MARGIN_S = -30.0
