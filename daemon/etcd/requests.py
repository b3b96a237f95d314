"""Requests of etcd as mappings that `msgspec.json` encodes: keys and values are bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

Body: TypeAlias = dict[str, Any]


def end_of(prefix: bytes) -> bytes:
    """The end of the range of all keys with a prefix."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else b"\0"


# Conditions of a transaction.


def is_absent(key: bytes) -> Body:
    return _compare(key, "CREATE", "EQUAL", create_revision=0)


def exists(key: bytes) -> Body:
    return _compare(key, "CREATE", "GREATER", create_revision=0)


def is_created_at(key: bytes, revision: int) -> Body:
    return _compare(key, "CREATE", "EQUAL", create_revision=revision)


def is_at(key: bytes, revision: int) -> Body:
    """The key was last changed at this revision; 0: it is absent."""
    return _compare(key, "MOD", "EQUAL", mod_revision=revision)


def is_unchanged_since(key: bytes, revision: int) -> Body:
    """The key was not put after this revision; an absent key is unchanged."""
    return _compare(key, "MOD", "LESS", mod_revision=revision + 1)


def is_under(key: bytes, lease: int) -> Body:
    return _compare(key, "LEASE", "EQUAL", lease=lease)


# Operations of a transaction.


def put(key: bytes, value: bytes, lease: int = 0) -> Body:
    return {"request_put": {"key": key, "value": value, "lease": lease}}


def get(key: bytes, *, keys_only: bool = False) -> Body:
    return {"request_range": {"key": key, "keys_only": keys_only}}


def delete(key: bytes) -> Body:
    return {"request_delete_range": {"key": key}}


def delete_prefix(prefix: bytes) -> Body:
    return {"request_delete_range": {"key": prefix, "range_end": end_of(prefix)}}


def nested(compare: Sequence[Body], success: Sequence[Body], failure: Sequence[Body] = ()) -> Body:
    """A transaction within a transaction: each one of a batch has conditions of its own."""
    return {"request_txn": transaction(compare, success, failure)}


def transaction(compare: Sequence[Body], success: Sequence[Body], failure: Sequence[Body] = ()) -> Body:
    return {"compare": list(compare), "success": list(success), "failure": list(failure)}


def _compare(key: bytes, target: str, result: str, **value: int) -> Body:
    return {"key": key, "target": target, "result": result, **value}
