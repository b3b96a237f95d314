"""Where the members of a fleet publish: what a subscriber asks, and who can tell.

A fleet's coordinator is asked by the daemon's package, which says so by an entry point of the group `lookout.members`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from lookout.errors import ConfigError

_GROUP = "lookout.members"
_NEEDS = "Subscriber(fleet=...) needs lookoutd"


class Endpoint(Protocol):
    """Where a member publishes.

    Attributes:
        messages: such as tcp://192.0.2.5:5556.
        server_key: its public CURVE key, 40 characters of Z85; None without encryption.
    """

    @property
    def messages(self) -> str: ...
    @property
    def server_key(self) -> str | None: ...


class MemberEndpoints(Protocol):
    """The members of a fleet, as they come and go. A subscriber uses it from its own thread, and closes it.

    Attributes:
        fd: readable when the members may have changed.
        failure: why the members are not known now; None if they are.
    """

    @property
    def fd(self) -> int: ...
    @property
    def failure(self) -> str | None: ...

    def read(self) -> Mapping[str, Endpoint]:
        """By member, as known now; `fd` is not readable until they change. It never blocks."""
        ...

    def close(self) -> None:
        """More than once is fine."""
        ...


def follow(address: str) -> MemberEndpoints:
    """The members of the fleet of an address, such as etcd://192.0.2.5:2379/lookout.

    Raises:
        ConfigError: nobody here can follow it, or the address is none.
    """
    from importlib.metadata import entry_points  # slow, and few follow a fleet

    found = [*entry_points(group=_GROUP)]
    if not found:
        raise ConfigError(f"{_NEEDS}: pip install lookoutd; in a checkout: pip install ./client .")
    try:
        following = found[0].load()
    except (ImportError, AttributeError) as error:
        remedy = "install it in an environment of its own"
        raise ConfigError(f"{_NEEDS}, which cannot be imported here ({error}): {remedy}") from error
    members: MemberEndpoints = following(address)
    return members
