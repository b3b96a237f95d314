"""Which addresses are the public internet, and which a configuration admits beside them.

Networks for special purposes as of IANA's registries (RFC 6890, and what came later): Python's own lists differ from
version to version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address

_OF_IPV4 = [
    (ip_network(text), what)
    for text, what in (
        ("0.0.0.0/8", "of this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "of a carrier"),
        ("127.0.0.0/8", "of this machine"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "of a protocol"),
        ("192.0.2.0/24", "for documents"),
        ("192.88.99.0/24", "of a relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "for benchmarks"),
        ("198.51.100.0/24", "for documents"),
        ("203.0.113.0/24", "for documents"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
]
_OF_IPV6 = [
    (ip_network(text), what)
    for text, what in (
        ("::1/128", "of this machine"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("ff00::/8", "multicast"),
        ("2001::/23", "of a protocol"),
        ("2001:db8::/32", "for documents"),
        ("2002::/16", "of a relay"),
        ("3fff::/20", "for documents"),
    )
]
_GLOBAL = ip_network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")  # holds an address of IPv4 in its last four bytes


class Networks:
    """The public internet, and what is admitted beside it.

    Args:
        allow: networks such as 10.0.0.0/8, or addresses.

    Raises:
        ValueError: one is none; says which.
    """

    def __init__(self, allow: Sequence[str]) -> None:
        self._allowed = [ip_network(text.strip()) for text in allow]

    def refusal(self, text: str) -> str | None:
        """The purpose of an address that is neither public nor admitted; None if it may be connected to.

        Args:
            text: an address, perhaps with a zone, as fe80::1%eth0.
        """
        address = ip_address(text.partition("%")[0])
        inner = _inner(address)
        if any(
            row in network for row in (address, inner) for network in self._allowed if network.version == row.version
        ):
            return None
        return _purpose(inner)


def is_of_this_machine(text: str) -> bool:
    """Whether an address is loopback, also as IPv6 writes one of IPv4."""
    return _inner(ip_address(text.partition("%")[0])).is_loopback


def networks_problem(allow: Sequence[str]) -> str | None:
    """The mistake in the key `allow`; None without one."""
    for text in allow:
        try:
            Networks([text])
        except ValueError:
            return f"allow: {text!r} is no network: write one such as 10.0.0.0/8 or fd00::/8, or an address"
    return None


def _inner(address: Address) -> Address:
    """The address of IPv4 that is meant by one of IPv6, or else the address itself."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _purpose(address: Address) -> str | None:
    return next(_purposes(address), None)


def _purposes(address: Address) -> Iterator[str]:
    if isinstance(address, IPv4Address):
        yield from (what for network, what in _OF_IPV4 if address in network)
        return
    yield from (what for network, what in _OF_IPV6 if address in network)
    if address not in _GLOBAL:
        yield "reserved"
