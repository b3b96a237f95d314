"""Errors of etcd, each with one line for the user."""

from __future__ import annotations

from daemon.errors import LookoutError


class EtcdError(LookoutError):
    """etcd refuses, or its files cannot be used; the same request would be refused again."""


class EtcdAwayError(EtcdError):
    """No endpoint answers in time, or they have no leader. A write may have been done nevertheless."""


class LeaseNotFoundError(EtcdError):
    """The lease has ended, and so have the keys under it."""


class TokenError(EtcdError):
    """The token of the user has expired; another one is needed."""


class CompactedError(EtcdError):
    """The revision has been compacted: list anew, and watch from there."""
