"""A planted defect: members believe in their lease for half a minute more. A daemon imports it."""

from daemon.fleet.lease_page import LeasePage

_set_renewed = LeasePage.set_renewed


def _too_long(page: LeasePage, valid_until: int, now: int) -> None:
    _set_renewed(page, valid_until + 30_000_000_000, now)


LeasePage.set_renewed = _too_long  # type: ignore[method-assign, assignment]
