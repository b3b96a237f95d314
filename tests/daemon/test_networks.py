"""Promises about addresses: what is not the public internet is refused, however it is written."""

from __future__ import annotations

import pytest

from daemon.config.networks import Networks, is_of_this_machine, networks_problem

REFUSED = """
    127.0.0.1 127.9.9.9 0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 169.254.169.254 172.16.0.1 172.31.255.255
    192.0.0.8 192.0.2.1 192.168.1.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255
    ::1 :: ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:a9fe:a9fe ::ffff:0:127.0.0.1 64:ff9b::7f00:1
    64:ff9b::169.254.169.254 64:ff9b::10.1.2.3 64:ff9b:1::1 100::1 fc00::1 fd12:3456::1 fe80::1 fe80::1%eth0 fec0::1
    ff02::1 ff0e::1 2001:db8::1 2001::1 2002:7f00:1:: 2002:a00:1:: 3fff::1 4000::1 5f00::1
"""
PUBLIC = """
    1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.1 100.63.255.255 100.128.0.1 128.0.0.1 169.253.0.1 172.15.0.1 172.32.0.1
    192.167.0.1 192.169.0.1 223.255.255.255 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2606:4700::1111 2a00:1450::1 2001:4860::8888
"""


@pytest.mark.parametrize("text", REFUSED.split())
def test_what_is_not_the_public_internet_is_refused(text: str) -> None:
    assert Networks([]).refusal(text)


@pytest.mark.parametrize("text", PUBLIC.split())
def test_the_public_internet_is_not(text: str) -> None:
    assert Networks([]).refusal(text) is None


def test_networks_are_admitted_by_name() -> None:
    networks = Networks(["10.0.0.0/8", "fd00::/8", "192.168.1.7"])
    for text in ("10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3", "fd12::1", "192.168.1.7"):
        assert networks.refusal(text) is None
    for text in ("11.0.0.0", "127.0.0.1", "169.254.169.254", "fc00::1", "192.168.1.8", "::ffff:192.168.1.8"):
        assert (networks.refusal(text) is None) == (text == "11.0.0.0")


def test_an_address_of_ipv6_that_stands_for_one_of_ipv4_may_be_admitted_as_written() -> None:
    assert Networks(["64:ff9b::/96"]).refusal("64:ff9b::7f00:1") is None


def test_loopback_has_several_forms() -> None:
    assert all(map(is_of_this_machine, ("127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1")))
    assert not any(map(is_of_this_machine, ("10.0.0.1", "::2", "0.0.0.0")))  # noqa: S104 - not bound here


@pytest.mark.parametrize("text", ["10.0.0.1/8", "ten", "", "10.0.0.0/33", "example.com"])
def test_a_network_that_is_none_is_named(text: str) -> None:
    problem = networks_problem(["10.0.0.0/8", text])
    assert problem
    assert "10.0.0.0/8 or fd00::/8" in problem
    assert repr(text) in problem
    assert networks_problem(["10.0.0.0/8", "::1"]) is None
