"""The etcd of tests of a fleet serves those of a batch as well."""

from __future__ import annotations

from tests.fleet.conftest import etcd, etcd_alone

__all__ = ["etcd", "etcd_alone"]
